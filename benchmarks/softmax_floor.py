"""Floors: our softmax kernels with next to no arithmetic, for what a kernel of their kind can reach at best.

A floor is a version's template with the files in `floor/` in the place of those of the same names. So it has the grid, the blocks, the
packs, the clusters and the exchange of that version. What is left of its arithmetic is one instruction for two words, so that the exchange
waits for all loads, and those of the exchange itself. Versions up to v5, and v9, also keep what they do to a pack besides exponentials.
"""

import os
import shutil
import tempfile
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cache
from pathlib import Path

from autotune import catalogue, nvcc
from autotune.configuration import Configuration
from autotune.definition import Version
from autotune.trial import Failure, Instance

Built = tuple[Configuration, str]  # for an element type

HEADERS = Path(__file__).parent / "floor"
SOFTMAX = catalogue.load("softmax")


@cache
def version(name: str) -> Version:
    """The version called `name` as a floor: the same definition, another template."""
    shipped = SOFTMAX.version(name)
    folder = Path(tempfile.mkdtemp(prefix="softmax-floor-"))
    shutil.copytree(shipped.template.parent, folder, dirs_exist_ok=True)
    shutil.copytree(HEADERS, folder, dirs_exist_ok=True)
    return replace(shipped, template=folder / shipped.template.name)


def build(wanted: Iterable[tuple[Configuration, str]], arch: str) -> dict[Built, Instance | Failure]:
    """The floors of configurations for their element types, or why there is none; compiled on all cores."""
    keys = list(dict.fromkeys(wanted))

    def built(key: Built) -> Instance | Failure:
        [(_, result)] = nvcc.compile_instances(version(key[0].version), [key[0]], key[1], arch, jobs=1)
        return result

    for name in {configuration.version for configuration, _ in keys}:
        version(name)  # before threads ask for it
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return dict(zip(keys, pool.map(built, keys), strict=True))
