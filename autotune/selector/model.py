"""A trained selector: what the database stores of it, and what the dispatcher asks it."""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from math import inf, log
from typing import Any, Self

from autotune.configuration import Configuration
from autotune.device import Device
from autotune.errors import AutotuneError
from autotune.operation import PACKS_A_THREAD, RELATIVE, Operation
from autotune.problem import Problem
from autotune.selector.matrix import Family
from autotune.selector.neighbours import Neighbours
from autotune.selector.regret import Regret
from autotune.selector.table import Table
from autotune.selector.tree import Tree

FORMAT = 2  # of the stored body, and of what is trained: raised when either changes
Predictor = Tree | Neighbours | Table
PREDICTORS: dict[str, type[Tree] | type[Neighbours] | type[Table]] = {"tree": Tree, "neighbours": Neighbours, "table": Table}


@dataclass(frozen=True, slots=True, eq=False)
class Model:
    """Which of a few families, the analytic default first, runs a size that was never tuned.

    `regret` was measured on sizes that training did not see; `default_regret` is that of the analytic default on the same ones, None where
    it was not measured. Without a `predictor` the default is always chosen. `sizes` counts the tuned ones it was trained on, `templates`
    holds the source's hash of every version that was measured at them, and `stale` names those that have another one now. `versions` are
    the others: what the default proposes beyond those is no more than a guess.
    """

    members: tuple[Family, ...]
    predictor: Predictor | None
    regret: Regret
    default_regret: Regret | None
    sizes: int
    templates: Mapping[str, str]
    stale: frozenset[str] = frozenset()
    versions: frozenset[str] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "versions", frozenset(self.templates) - self.stale)

    @property
    def kind(self) -> str:
        return self.predictor.kind if self.predictor else "default"

    def ranking(self, problem: Problem, device: Device) -> Iterator[tuple[float, Family]]:
        """(expected log regret, family) for each member, best first. Whether a family has a member for `problem` is to be asked."""
        if self.predictor is None:
            yield log(self.regret.geomean), None
        elif not problem.empty:
            for cost, member in self.predictor.ranking(problem, device):
                family = self.members[member]
                if family is None or family.version in self.versions:
                    yield cost, family

    def to_json(self) -> str:
        return json.dumps(
            {
                "format": FORMAT,
                "kind": self.kind,
                "members": [None if m is None else [m.version, dict(m.parameters)] for m in self.members],
                "predictor": self.predictor.to_json() if self.predictor else None,
                "regret": [self.regret.geomean, self.regret.p95, self.regret.worst],
                "default_regret": [*_numbers(self.default_regret)],
                "sizes": self.sizes,
                "templates": dict(self.templates),
            }
        )

    @classmethod
    def from_json(cls, text: str, operation: Operation, template_sha: Callable[[str], str] | None = None) -> Self:
        """The model that was stored as `text`. With `template_sha`, members of versions that have another template now are never chosen.

        Raises AutotuneError for what is no model, or one of another format or other kernels.
        """
        try:
            body = json.loads(text)
            if body["format"] != FORMAT:
                raise AutotuneError(f"its format is {body['format']} and {FORMAT} is known")
            members = tuple(_family(member, operation) for member in body["members"])
            if members[:1] != (None,):
                raise ValueError("the analytic default is not its first member")
            kind = body["kind"]
            predictor = None if kind == "default" else PREDICTORS[kind].from_json(body["predictor"], len(members))
            regret, default = Regret(*map(float, body["regret"])), body["default_regret"]
            if not 1 <= regret.geomean < inf:
                raise ValueError(f"regret {regret.geomean} is no ratio to a best time")
            templates = {str(version): str(sha) for version, sha in body["templates"].items()}
            stale = frozenset(version for version, sha in templates.items() if template_sha and template_sha(version) != sha)
            return cls(members, predictor, regret, Regret(*default) if default else None, int(body["sizes"]), templates, stale)
        except (ValueError, TypeError, KeyError, IndexError, AttributeError, ArithmeticError, RecursionError) as error:
            raise AutotuneError(f"it cannot be read: {type(error).__name__}: {error}") from error

    def __str__(self) -> str:
        learnt = f"{self.kind} over {self.sizes} sizes and {len(self.members)} kernels"
        return f"{learnt}; time of its choice over the best, on sizes left out of training: {self.regret}"


def _numbers(regret: Regret | None) -> tuple[float, ...]:
    return (regret.geomean, regret.p95, regret.worst) if regret else ()


def _family(stored: Any, operation: Operation) -> Family:
    if stored is None:
        return None
    version, parameters = stored
    declared, given = operation.version(version).parameters, dict(parameters)
    family = Configuration(version, tuple(parameters.items()))
    left_out = set(operation.fitted_parameters.get(version, ()))
    if RELATIVE in given:
        left_out.add(operation.shared_among[version])
        if given.pop(RELATIVE) not in PACKS_A_THREAD or family.parameters[0][0] != RELATIVE:
            raise ValueError(f"{family} has no such packs")
    names = [name for name in declared if name not in left_out]
    if list(given) != names or any(value not in declared[name] for name, value in given.items()):
        raise ValueError(f"{family} is not declared")
    return family
