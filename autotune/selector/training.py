"""Which predictor is used: the one that chooses best for sizes it was not trained on, if it beats the analytic default at all."""

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from autotune import catalogue
from autotune.device import Device
from autotune.errors import AutotuneError, UsageError, shortened
from autotune.operation import Operation
from autotune.selector.cover import MOST_MEMBERS, cover
from autotune.selector.matrix import Array, Matrix, read
from autotune.selector.model import FORMAT, Model, Predictor
from autotune.selector.neighbours import Neighbours
from autotune.selector.regret import Regret, hurt
from autotune.selector.table import Regression, Table, cell_problems, order_at
from autotune.selector.tree import Tree
from autotune.trial import TimingProtocol

if TYPE_CHECKING:
    from autotune.database import Database

LEAST_SIZES = 8
MEMBERS = (8, MOST_MEMBERS)  # of a cover, at most: where tuned sizes are far apart, fewer are chosen among more safely
MOST_FOLDS = 10
LEAST_SIZES_OF_A_TABLE = 96  # below that, a forest of all measurements has too few of them to tell more than their neighbours do
REVISION = 5  # of the way to train: what was trained in another one is trained again
MOST_SAID = 200  # characters of what is wrong with a stored selector
NOISE = 0.003  # of mean log regret: repeated measurements of one kernel agree no better


@dataclass(frozen=True, slots=True)
class Trained:
    """What training came to for one operation, dtype and device: the model, why that one, and whether it is a new one."""

    operation: str
    dtype: str
    device: Device
    timing: TimingProtocol
    model: Model
    why: str
    changed: bool


def train(
    database: "Database",
    operation: Operation,
    device: Device,
    timing: TimingProtocol,
    dtype: str,
    *,
    stale: bool = False,
    told: Callable[[str], None] = lambda _: None,
) -> Trained | None:
    """Train on all that `database` knows, and store the result as the active selector; None with fewer than `LEAST_SIZES` tuned sizes.

    Deterministic, and free of work when nothing was measured since the last time. With `stale`, times of templates that have changed
    since count as if they had not. `told` hears of work that takes a while. Raises UsageError when the database cannot be written.
    """
    matrix = read(database, operation, device, timing, dtype, stale=stale)
    if len(matrix.problems) < LEAST_SIZES:
        return None
    sha = f"{FORMAT}-{REVISION}-{matrix.sha()}"
    rows = database.select(
        "SELECT body, train_sha FROM active_selectors WHERE operation = ? AND dtype = ? AND device = ?",
        (operation.name, dtype, device.name),
    )
    if rows and rows[0]["train_sha"] == sha and (stored := _stored(database, rows[0]["body"], operation, f"{dtype} on {device.name}")):
        return Trained(operation.name, dtype, device, timing, stored, "nothing was measured since it was trained", False)
    told(f"training the selector for {operation.name} {dtype} on {device.name} on {len(matrix.problems)} sizes")
    model, why = choose(matrix, operation, device)
    regret = (model.regret.geomean, model.regret.p95, model.regret.worst)
    database.store_selector(device, operation.name, dtype, model.kind, model.to_json(), sha, regret)
    return Trained(operation.name, dtype, device, timing, model, why, True)


def train_all(
    database: "Database", operations: Mapping[str, Operation] | None = None, told: Callable[[str], None] = lambda _: None
) -> list[Trained]:
    """Train for every GPU, operation and dtype that has enough tuned sizes, under the protocol that the dispatcher goes by."""
    trained = []
    for device in database.devices_measured():
        timings = sorted(database.protocols_measured(device), key=lambda timing: (timing.name == "warm", -timing.rule))
        if device.is_emulator or not timings:
            continue
        for name, dtype in sorted({(row["operation"], row["dtype"]) for row in database.best(device=device.name)}):
            operation = (operations or {}).get(name) or _shipped(name)
            done = operation and train(database, operation, device, timings[0], dtype, told=told)
            if done:
                trained.append(done)
    return trained


def choose(matrix: Matrix, operation: Operation, device: Device) -> tuple[Model, str]:
    """The model for `matrix`, with its cross-validated regret, and why it is that one."""
    tried = {(most, kind): costs for most in MEMBERS for kind, costs in cross_validated(matrix, device, most).items()}
    if len(matrix.problems) >= LEAST_SIZES_OF_A_TABLE:
        tried[MOST_MEMBERS, Table.kind] = table_validated(matrix, operation, device)
    # Where nothing tells them apart, more members leave fewer sizes without a kernel made for them, a tree ends where the grid does, and
    # neighbours take ten times as long to ask as a table.
    liked = {one: NOISE * ((one[0] > MEMBERS[0]) + (one[1] != Tree.kind) + (one[1] == Table.kind)) for one in tried}
    most, kind = min(tried, key=lambda one: round(float(hurt(tried[one]).mean()) - liked[one], 6))
    left_out = tried[most, kind]
    default = matrix.costs[:, 0]
    comparable = np.isfinite(default)
    default_regret = Regret.of(default[comparable]) if comparable.any() else None
    gain = float((default - left_out)[comparable].mean()) if comparable.sum() >= LEAST_SIZES else None
    templates = {f.version: matrix.templates.get(f.version, "") for f in matrix.families if f}
    if gain is not None and gain <= NOISE:
        assert default_regret is not None
        why = f"nothing that was trained beats the analytic default by more than noise ({100 * np.expm1(gain):+.1f} %)"
        return Model((None,), None, default_regret, default_regret, len(matrix.problems), templates), why
    if kind == Table.kind:
        regression, members = Regression.fit(matrix, operation, device)
        predictor: Predictor = Table.fit(regression, matrix.problems)
    else:
        members, predictors = fit(matrix, device, most)
        predictor = predictors[kind]
    families = tuple(matrix.families[column] for column in members)
    model = Model(families, predictor, Regret.of(left_out), default_regret, len(matrix.problems), templates)
    against = "the analytic default was measured at too few sizes to compare" if gain is None else f"{100 * np.expm1(gain):.1f} % faster"
    others = ", ".join(f"{other} of {count} {np.exp(costs.mean()):.3f}" for (count, other), costs in tried.items())
    return model, f"mean regret on sizes left out: {others}; {against}" + (" than the analytic default" if gain is not None else "")


def fit(matrix: Matrix, device: Device, most_members: int = MOST_MEMBERS) -> tuple[list[int], dict[str, Predictor]]:
    """The members (columns of `matrix`) and each predictor over them."""
    members = cover(matrix, most_members)
    costs = matrix.costs[:, members]
    return members, {made.kind: made.fit(matrix.problems, costs, device) for made in (Tree, Neighbours)}


def cross_validated(matrix: Matrix, device: Device, most_members: int = MOST_MEMBERS) -> dict[str, Array]:
    """Each predictor's log regret at each size, by predictors and members that were chosen without that size."""
    count = len(matrix.problems)
    folds = min(count, MOST_FOLDS)
    costs = matrix.costs
    found: dict[str, Array] = {}
    for fold in range(folds):
        kept = [row for row in range(count) if row % folds != fold]
        members, predictors = fit(matrix.only(kept), device, most_members)
        for row in range(fold, count, folds):
            for kind, predictor in predictors.items():
                ranking = [members[member] for _, member in predictor.ranking(matrix.problems[row], device)]
                found.setdefault(kind, np.zeros(count))[row] = first_known(costs[row], ranking)
    return found


def table_validated(matrix: Matrix, operation: Operation, device: Device) -> Array:
    """The same for a table; a cell's entry is worked out only where a size asks for it."""
    count = len(matrix.problems)
    folds = min(count, MOST_FOLDS)
    costs, found = matrix.costs, np.zeros(count)
    cells = cell_problems(matrix.problems, device)
    for fold in range(folds):
        regression, members = Regression.fit(matrix.only([row for row in range(count) if row % folds != fold]), operation, device)
        expected = regression.expected(cells[fold::folds])
        for row, here in zip(range(fold, count, folds), expected, strict=True):
            found[row] = first_known(costs[row], [members[member] for member in order_at(here)])
    return found


def first_known(costs: Array, ranking: Iterable[int] | Sequence[int]) -> float:
    """The cost of the first column in `ranking` that can run the size and was measured there; of the worst one when none was."""
    return next((float(costs[column]) for column in ranking if np.isfinite(costs[column])), float(np.nanmax(costs)))


def _stored(database: "Database", body: str, operation: Operation, what: str) -> Model | None:
    """The model that was stored as `body`; None, with a warning, where it cannot be read."""
    try:
        return Model.from_json(body, operation)
    except AutotuneError as error:
        said = f"the selector for {operation.name} {what} ({shortened(' '.join(str(error).split()), MOST_SAID)})"
        warnings.warn(f"database {database.path}: {said} cannot be used, and another is trained", stacklevel=2)
        return None


def _shipped(operation: str) -> Operation | None:
    try:
        return catalogue.load(operation)
    except UsageError:
        return None
