"""Where configurations become instances: built on first need, many at a time, and never while something is being timed."""

from collections.abc import Callable, Iterable, Mapping

from autotune.backends import Backend
from autotune.compilers import MachineError, machine_fault
from autotune.configuration import Configuration
from autotune.operation import Operation
from autotune.trial import Failure, Instance

Hear = Callable[[int, int, Mapping[Configuration, str]], None]


class Workshop:
    """The instances of one operation on one backend, by configuration and element type."""

    def __init__(self, backend: Backend, operation: Operation) -> None:
        self._backend = backend
        self._operation = operation
        self._built: dict[tuple[Configuration, str], Instance | Failure] = {}

    def build(self, configurations: Iterable[Configuration], dtype: str, hear: Hear | None = None) -> None:
        """Build whichever of `configurations` is missing; `hear` is told how many are done, of how many, and those that failed with why.

        Raises MachineError when a compiler failed for want of memory, room or a program, which says nothing of the configuration.
        """
        # What is replayed was of other sources at another size where those had changed meanwhile, and costs nothing to have again.
        missing = [c for c in dict.fromkeys(configurations) if self._backend.replayed or (c, dtype) not in self._built]
        done, failed = 0, dict[Configuration, str]()
        for name, version in self._operation.versions.items():
            wanted = [c for c in missing if c.version == name]
            for configuration, result in self._backend.compile(version, wanted, dtype) if wanted else ():
                if isinstance(result, Failure) and not self._backend.replayed and (what := machine_fault(result.message)):
                    raise MachineError(f"{configuration} could not be compiled ({result.message}); {what}, and run again")
                self._built[configuration, dtype] = result
                done += 1
                if isinstance(result, Failure):
                    failed[configuration] = result.message
                if hear:
                    hear(done, len(missing), failed)

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
