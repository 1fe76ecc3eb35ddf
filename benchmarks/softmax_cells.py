"""The cells that `softmax_peers.py` measures, and the file that its results are kept in. Needs no GPU."""

import json
import random
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autotune.errors import UsageError
from autotune.problem import Problem, parse_size

SIZES = """
    4096x4096 4096x1024 4096x16384 1024x65536 32x128256 65536x128 32768x512 8192x2048 8192x8192 2048x32768 1x131072 8x131072 64x50257
    1024x1000 16384x2047 8192x4095 262144x32 65536x256 1048576x16 512x131072 256x262144 1x4096 128x4096 1x1024 16x1024
""".split()  # noqa: SIM905
MOST_BYTES = 1 << 30  # of a drawn problem's float32 input


@dataclass(frozen=True)
class Cell:
    problem: Problem
    drawn: bool  # at random, so that nobody tuned for it

    @property
    def key(self) -> tuple[str, int, int, bool]:
        return self.problem.dtype, self.problem.rows, self.problem.cols, self.drawn


def drawn_sizes(seed: int, count: int) -> list[tuple[int, int]]:
    """Sizes drawn evenly over the logarithm of both sides."""
    generator = random.Random(seed)
    sizes: list[tuple[int, int]] = []
    while len(sizes) < count:
        rows, cols = (int(2 ** generator.uniform(0, top)) for top in (20, 18))
        if rows * cols * 4 <= MOST_BYTES:
            sizes.append((rows, cols))
    return sizes


def cells_of(dtypes: Iterable[str], sizes: Iterable[str], drawn: int, seed: int) -> list[Cell]:
    """Tuned sizes first, then drawn ones; element types in turn, so that a run that is cut short has some of each."""
    named = [parse_size(size) for size in sizes]
    both: list[tuple[tuple[int, int], bool]] = [(size, False) for size in named] + [(size, True) for size in drawn_sizes(seed, drawn)]
    return [Cell(Problem("softmax", *size, dtype), is_drawn) for size, is_drawn in both for dtype in dtypes]


class Record:
    """The file of a run: read where it is there, written after each cell."""

    def __init__(self, path: Path | None, seed: int | None) -> None:
        self._path = path
        self.content: dict[str, Any] = {"seed": random.randrange(2**32) if seed is None else seed, "runs": [], "cells": []}
        if path and path.is_file():
            self.content = json.loads(path.read_text())
            if seed not in (None, self.content["seed"]):
                raise UsageError(f"{path} was begun with seed {self.content['seed']}, not {seed}; leave --seed out or name another file")

    @property
    def seed(self) -> int:
        return int(self.content["seed"])

    @property
    def keys(self) -> set[tuple[str, int, int, bool]]:
        return {(row["dtype"], row["rows"], row["cols"], row["drawn"]) for row in self.content["cells"]}

    def begin(self, about: dict[str, Any]) -> None:
        self.content["runs"].append(about)

    def add(self, row: dict[str, Any]) -> None:
        self.content["cells"].append({**row, "run": len(self.content["runs"]) - 1})
        if self._path:
            partial = self._path.with_name(self._path.name + ".partial")
            partial.write_text(json.dumps(self.content, indent=1) + "\n")
            partial.replace(self._path)
