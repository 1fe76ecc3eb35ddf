"""The tuning database: one SQLite file that remembers every trial and what followed from them.

    with Database("mine.sqlite") as db:
        db.best("softmax", 4096, 4096, "float32")

`file` is the whole of it. `schema` and `views` say what is in a file, `connection` how it is opened and written, `faults` what went wrong
with it. `record` and `decide` fill it, `read`, `recall` and `rows` ask it, `credible` is what any row must say, `sound` leaves out what a
damaged one says, `rebuild` derives what follows from trials, `transfer` and `merge` share it, `vetting` refuses foreign rows that cannot
be, `placing` puts whole files in place, `packing` compresses the kernels in it, `prune` lets trials go and `thin` makes a copy small,
`comparison` compares two files; `kernel_tuner`, `t4` and `optuna_storage` speak other programs' formats. Anything that reads SQLite reads
it too.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from autotune.database.decide import Settled
    from autotune.database.file import Database
    from autotune.database.filesystem import default_path, shipped_databases
    from autotune.database.read import StoredTrial
    from autotune.database.rebuild import Rebuilt
    from autotune.database.transfer import Imported

# Imported when first asked for: a dispatcher needs to know where databases lie, and nothing of what tuning writes to them.
_HOMES = {
    "Database": "file",
    "Imported": "transfer",
    "Rebuilt": "rebuild",
    "Settled": "decide",
    "StoredTrial": "read",
    "default_path": "filesystem",
    "shipped_databases": "filesystem",
}

__all__ = ["Database", "Imported", "Rebuilt", "Settled", "StoredTrial", "default_path", "shipped_databases"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'autotune.database' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"autotune.database.{_HOMES[name]}"), name)
    return value


def __dir__() -> list[str]:
    return sorted(set(globals()) | set(_HOMES))
