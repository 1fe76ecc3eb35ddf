"""A tree and neighbours asked together: where one is misled by a single size, the other is not."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from autotune.device import Device
from autotune.problem import Problem
from autotune.selector.features import Features
from autotune.selector.matrix import Array
from autotune.selector.neighbours import Neighbours
from autotune.selector.regret import Ranking, hurt, ranked
from autotune.selector.tree import Tree


@dataclass(frozen=True, slots=True, eq=False)
class Blend:
    """What either expects, added. `leaves` keeps what the leaves of the tree that were reached expect, in the order of the members."""

    tree: Tree
    neighbours: Neighbours
    leaves: dict[int, Array] = field(init=False, default_factory=dict)

    kind = "blend"

    @classmethod
    def fit(cls, problems: tuple[Problem, ...], costs: Array, device: Device) -> "Blend":
        """From the log regret of each size (row) with each member (column), NaN where unknown."""
        return cls(Tree.fit(problems, costs, device), Neighbours.fit(problems, costs, device))

    def ranking(self, seen: Features) -> Ranking:
        """All members, the one that is expected to hurt least first."""
        leaf = self.tree.ranking(seen)
        told = self.leaves.get(id(leaf))
        if told is None:
            costs = np.empty(len(leaf))
            for cost, member in leaf:
                costs[member] = cost
            told = self.leaves[id(leaf)] = hurt(costs)
        return ranked((self.neighbours.expected(seen) + told) / 2)

    def to_json(self) -> Any:
        return {"tree": self.tree.to_json(), "neighbours": self.neighbours.to_json()}

    @classmethod
    def from_json(cls, body: Any, members: int) -> "Blend":
        """Raises ValueError, TypeError, KeyError or IndexError for a body that is none."""
        return cls(Tree.from_json(body["tree"], members), Neighbours.from_json(body["neighbours"], members))
