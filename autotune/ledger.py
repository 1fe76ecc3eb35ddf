"""What a sweep writes down, each thing as soon as it is known. A full disk makes it wait for room."""

import time
from collections.abc import Callable, Mapping
from typing import TypeVar

from autotune.backends import Backend
from autotune.configuration import Configuration
from autotune.database import Database, Settled
from autotune.errors import StorageError
from autotune.problem import Problem
from autotune.trial import Check, Failure, Instance, Outcome, Round
from autotune.watch import Watcher

ROOM_WAIT_S = 60.0  # long enough for another job's temporary files to go; a disk that stays full ends the sweep, with all that is stored
ASK_AGAIN_S = 0.5

# Want of memory says something about a size. All else says something about the kernel, a hang too: what takes ten seconds at one size is
# not worth two times ten at each further one, and a kernel that may hang is to be launched nowhere.
OF_ONE_PROBLEM = (Outcome.OUT_OF_MEMORY,)

T = TypeVar("T")


class Ledger:
    """The database as one run of a sweep writes it.

    Each method is tried again for up to `room_wait_s` seconds when there is no room for what it writes, and then raises StorageError.
    """

    def __init__(self, database: Database, backend: Backend, run_id: int, watcher: Watcher, *, room_wait_s: float = ROOM_WAIT_S) -> None:
        self._database = database
        self._backend = backend
        self._run_id = run_id
        self._watcher = watcher
        self._room_wait_s = room_wait_s
        self.raced_again = 0  # trials of what an earlier run had tried, which has one more for its rounds of this run

    def trial(
        self, problem: Problem, configuration: Configuration, outcome: Outcome, instance: Instance, check: Check, first: Round
    ) -> int:
        """Store a trial that was timed; returns its id."""
        return self._write(
            lambda: self._database.record(
                self._run_id,
                problem,
                configuration,
                instance.template_sha,
                outcome,
                instance=instance,
                check=check,
                rounds=(first,),
                replayed=self._backend.replayed,
            )
        )

    def failure(self, problem: Problem, configuration: Configuration, template_sha: str, failure: Failure) -> int:
        """Store a trial that failed; returns its id."""
        return self._write(
            lambda: self._database.record(
                self._run_id,
                problem,
                configuration,
                template_sha,
                failure.outcome,
                message=failure.message,
                replayed=self._backend.replayed,
            )
        )

    def block(self, problem: Problem, configuration: Configuration, template_sha: str, failure: Failure) -> None:
        """Have `configuration` never tried or selected again: on this problem, or wherever it would run on this device.

        Not for a compile error, which leaves nothing to select and which another compiler may not have. What was only replayed blocks
        nothing: the database that it was recorded in has its own list.
        """
        if failure.outcome is Outcome.COMPILE_ERROR or self._backend.replayed:
            return
        where = problem if failure.outcome in OF_ONE_PROBLEM else None
        reason = f"{failure.outcome} at {problem.size}: {failure.message}"
        self._write(
            lambda: self._database.block(
                self._backend.device, problem.operation, configuration, template_sha, problem.dtype, reason, problem=where
            )
        )

    def race_round(
        self,
        problem: Problem,
        taken: Mapping[Configuration, Round],
        ids: Mapping[Configuration, int],
        instances: Mapping[Configuration, Instance],
    ) -> dict[Configuration, int]:
        """Store one round of several configurations, all of it or nothing; returns the ids of the trials that were added.

        A configuration without a trial of this run in `ids` gets one, so that no trial mixes the samples of two runs.
        """

        def store() -> dict[Configuration, int]:
            with self._database.write():
                self._database.add_rounds({ids[c]: samples for c, samples in taken.items() if c in ids})
                return {c: self._raced(problem, instances[c], samples) for c, samples in taken.items() if c not in ids}

        added = self._write(store)
        self.raced_again += len(added)
        return added

    def _raced(self, problem: Problem, instance: Instance, samples: Round) -> int:
        return self._database.record(
            self._run_id,
            problem,
            instance.configuration,
            instance.template_sha,
            Outcome.OK,
            instance=instance if instance.binary else None,
            rounds=(samples,),
            replayed=self._backend.replayed,
        )

    def finish(self, trial_id: int, failure: Failure) -> None:
        """Note that a timed trial failed after all."""
        self._write(lambda: self._database.finish(trial_id, failure.outcome, failure.message))

    def copy(self, problem: Problem, copy_us: float) -> None:
        """Store the time of a device copy of the problem's bytes."""
        self._write(lambda: self._database.record_copy(self._run_id, problem, copy_us))

    def keep(self, instance: Instance) -> None:
        """Keep the binary of an instance for the dispatcher."""
        self._write(lambda: self._database.store_binary(instance))

    def settle(self, problem: Problem, best: Settled, instance: Instance | None) -> None:
        """Make `best` the one to use for `problem`, and keep the binary of its instance for the dispatcher."""
        device = self._backend.device
        if instance is not None and instance.binary and not device.is_emulator:
            self.keep(instance)
        self._write(lambda: self._database.settle(self._run_id, device, self._backend.timing, problem, best))

    def _write(self, write: Callable[[], T]) -> T:
        started = time.monotonic()
        told = False
        while True:
            try:
                return write()
            except StorageError as error:
                if time.monotonic() - started >= self._room_wait_s:
                    self._room_wait_s = 0.0  # what follows on the way out does not wait again
                    raise
                if not told:
                    self._watcher.waiting(str(error), self._room_wait_s)
                told = True
            try:
                time.sleep(ASK_AGAIN_S)
            except KeyboardInterrupt:
                self._room_wait_s = 0.0
                raise
