"""The tuning database: one SQLite file that remembers every trial and what followed from them.

    with Database("mine.sqlite") as db:
        db.best("softmax", 4096, 4096, "float32")

`schema` and `views` say what is in it, `connection` how it is opened and written, `record`, `decide`, `read` and `rows` what is
asked of it. Anything that reads SQLite reads it too.
"""

from autotune.database.decide import Decider, Settled
from autotune.database.filesystem import default_path, shipped_databases
from autotune.database.read import Reader, StoredTrial
from autotune.database.recall import Recaller
from autotune.database.record import Recorder
from autotune.database.rows import Inspector
from autotune.database.transfer import Imported, Transfer

__all__ = ["Database", "Imported", "Settled", "StoredTrial", "default_path", "shipped_databases"]


class Database(Recorder, Decider, Reader, Recaller, Inspector, Transfer):
    """A tuning database, opened for reading or writing; see `autotune.database.connection.Connection` for how."""
