"""Where configurations become instances: built on first need, many at a time, and never while something is being timed."""

import errno
import os
from collections.abc import Callable, Iterable
from tempfile import gettempdir

from autotune.backends import Backend
from autotune.configuration import Configuration
from autotune.errors import StorageError
from autotune.operation import Operation
from autotune.trial import Failure, Instance

FULL = os.strerror(errno.ENOSPC)


class Workshop:
    """The instances of one operation on one backend, by configuration and element type."""

    def __init__(self, backend: Backend, operation: Operation) -> None:
        self._backend = backend
        self._operation = operation
        self._built: dict[tuple[Configuration, str], Instance | Failure] = {}

    def build(self, configurations: Iterable[Configuration], dtype: str, hear: Callable[[int, int], None] | None = None) -> None:
        """Build whichever of `configurations` is missing; `hear` is told how many are done, and of how many.

        Raises StorageError when a compiler had no room for its files, which says nothing of the configuration.
        """
        missing = [c for c in dict.fromkeys(configurations) if (c, dtype) not in self._built]
        done = 0
        for name, version in self._operation.versions.items():
            wanted = [c for c in missing if c.version == name]
            for configuration, result in self._backend.compile(version, wanted, dtype) if wanted else ():
                if isinstance(result, Failure) and FULL in result.message:
                    raise StorageError(
                        f"{configuration} could not be compiled ({result.message}); make room in {gettempdir()}, or name another folder by "
                        "TMPDIR, and run again"
                    )
                self._built[configuration, dtype] = result
                done += 1
                if hear:
                    hear(done, len(missing))

    def instance(self, configuration: Configuration, dtype: str) -> Instance:
        """The instance of a configuration that `build` was asked for. Raises its Failure when it does not compile."""
        result = self._built[configuration, dtype]
        if isinstance(result, Failure):
            raise result
        return result

    def find(self, configuration: Configuration, dtype: str) -> Instance | None:
        """The instance of a configuration, or None when it was not built or does not compile."""
        result = self._built.get((configuration, dtype))
        return result if isinstance(result, Instance) else None
