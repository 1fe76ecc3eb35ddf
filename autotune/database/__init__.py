"""The tuning database: one SQLite file that remembers every trial and what followed from them.

    with Database("mine.sqlite") as db:
        db.best("softmax", 4096, 4096, "float32")

`schema` and `views` say what is in a file, `connection` how it is opened and written. `record` and `decide` fill it, `read`, `recall`
and `rows` ask it, `rebuild` derives what follows from trials, `transfer` and `merge` share it, `packing` compresses the kernels in it,
`prune` lets trials go and `thin` makes a copy small, `comparison` compares two files; `kernel_tuner`, `t4` and `optuna_storage` speak
other programs' formats. Anything that reads SQLite reads it too.
"""

from autotune.database.decide import Settled
from autotune.database.filesystem import default_path, shipped_databases
from autotune.database.prune import Pruner
from autotune.database.read import StoredTrial
from autotune.database.rebuild import Rebuilder, Rebuilt
from autotune.database.record import Recorder
from autotune.database.thin import Thinner
from autotune.database.transfer import Imported, Transfer

__all__ = ["Database", "Imported", "Rebuilt", "Settled", "StoredTrial", "default_path", "shipped_databases"]


class Database(Recorder, Rebuilder, Transfer, Pruner, Thinner):
    """A tuning database, opened for reading or writing; see `autotune.database.connection.Connection` for how."""
