"""The database with all its parts: reading, recording, deciding, rebuilding, sharing, pruning and thinning."""

from autotune.database.prune import Pruner
from autotune.database.rebuild import Rebuilder
from autotune.database.record import Recorder
from autotune.database.thin import Thinner
from autotune.database.transfer import Transfer


class Database(Recorder, Rebuilder, Transfer, Pruner, Thinner):
    """A tuning database, opened for reading or writing; see `autotune.database.connection.Connection` for how."""
