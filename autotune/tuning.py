"""One problem's tuning: search, check, screen, store; then the race, and which configuration is best."""

import hashlib
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from math import log2

from autotune import source
from autotune.backends import Backend, Bench
from autotune.choice import Choice, candidates, choose
from autotune.configuration import Configuration
from autotune.database import Database, Settled, StoredTrial
from autotune.operation import Operation
from autotune.problem import Problem
from autotune.race import Race, screen
from autotune.search import Budget, Study
from autotune.statistics import median
from autotune.trial import Failure, Instance, Outcome, Round
from autotune.watch import ProblemSummary, Summary, Watcher
from autotune.workshop import Workshop

SMALL_SPACE = 1024  # a space up to this size is measured whole: that takes seconds, and a search could only miss something
BATCH = 16
NEIGHBOURS = 3
TRIES = {Outcome.COMPILE_ERROR: 1}  # the same source fails to compile the same way again; anything else may have been bad luck
DEFAULT_TRIES = 2


@dataclass(frozen=True, slots=True)
class Tools:
    """What all problems of one sweep share."""

    operation: Operation
    backend: Backend
    database: Database
    workshop: Workshop
    watcher: Watcher
    run_id: int
    seed: int
    versions: tuple[str, ...]
    budget: Budget | None


class Tuning:
    """Tunes one problem, continuing from whatever the database knows about it."""

    def __init__(self, tools: Tools, problem: Problem, summary: Summary) -> None:
        self._tools = tools
        self._problem = problem
        self._summary = summary
        self._started = time.monotonic()
        self._mine: set[Configuration] = set()  # those with a trial of this run

    def run(self) -> None:
        """Measure until the budget is spent, then settle; raises KeyboardInterrupt after storing what there is."""
        tools, mine = self._tools, ProblemSummary(self._problem, len(self._space), len(self._times))
        self._summary.problems.append(mine)
        tools.watcher.problem(mine)
        study = Study(self._space, seed=tools.seed, known=self._times, priors=self._priors())
        if self._budget.done(study, self._started, self._started) and self._final is not None:
            self._recall(mine, self._final)
        else:
            try:
                with tools.backend.open(tools.operation, self._problem, seed=tools.seed) as bench:
                    self._note_copy(bench, mine)
                    self._search(study, bench, mine)
                    self._race(bench, mine)
            except Failure as failure:  # the problem itself could not be set up: said, and the next one is taken
                mine.failures[failure.message] += 1
            finally:
                self._settle(mine)
        tools.watcher.settled(mine)

    def certain(self) -> list[Configuration]:
        """The configurations that are going to be measured whatever happens on the way."""
        return [c for c in self._space if c not in self._times] if self._budget.exhaustive else []

    @cached_property
    def _space(self) -> list[Configuration]:
        tools = self._tools
        possible = tools.backend.known(self._problem)
        return [
            c
            for c in tools.operation.configurations(tools.versions)
            if tools.operation.applicable(c, self._problem, tools.backend.device) and (possible is None or c in possible)
        ]

    @cached_property
    def _shas(self) -> dict[str, str]:
        """The hash of each version's present template."""
        return {name: template.sha for name, template in source.templates(self._tools.operation)}

    @cached_property
    def _budget(self) -> Budget:
        return self._tools.budget or Budget(exhaustive=len(self._space) <= SMALL_SPACE)

    @cached_property
    def _trials(self) -> dict[Configuration, StoredTrial]:
        """What is known of each configuration: its timed trial, or its failed one once it has failed too often to be tried again."""
        found: dict[Configuration, StoredTrial] = {}
        failed: Counter[Configuration] = Counter()
        for trial in self._stored():
            if trial.outcome.timed:
                found[trial.configuration] = trial
            else:
                failed[trial.configuration] += 1
                if failed[trial.configuration] >= TRIES.get(trial.outcome, DEFAULT_TRIES):
                    found.setdefault(trial.configuration, trial)
        return {c: found[c] for c in self._space if c in found}

    @cached_property
    def _times(self) -> dict[Configuration, float | None]:
        return {c: trial.time_us if trial.outcome.timed else None for c, trial in self._trials.items()}

    @cached_property
    def _ids(self) -> dict[Configuration, int]:
        return {c: trial.trial_id for c, trial in self._trials.items()}

    def _stored(self) -> list[StoredTrial]:
        backend = self._tools.backend
        trials = self._tools.database.trials(backend.device, backend.timing, problem=self._problem, replayed=backend.replayed)
        if backend.replayed:  # a recording is as good as it was, whatever became of its templates
            return trials
        return [trial for trial in trials if trial.template_sha == self._shas.get(trial.configuration.version)]

    def _priors(self) -> list[Mapping[Configuration, float]]:
        """Times at the nearest measured problems, for the search to start from."""
        if self._budget.exhaustive:
            return []
        backend, database = self._tools.backend, self._tools.database
        here = self._problem
        others = [
            p for p in database.problems_measured(here.operation, backend.device, backend.timing) if p.dtype == here.dtype and p != here
        ]
        nearest = sorted(others, key=lambda p: abs(log2(p.rows / here.rows)) + 4 * abs(log2(p.cols / here.cols)))[:NEIGHBOURS]
        found = [database.trials(backend.device, backend.timing, problem=p, replayed=backend.replayed) for p in nearest]
        return [{t.configuration: t.time_us for t in trials if t.outcome.timed and t.time_us} for trials in found]

    def _search(self, study: Study, bench: Bench, mine: ProblemSummary) -> None:
        while not self._budget.done(study, self._started, time.monotonic()):
            batch = study.ask(self._batch(study))
            self._tools.workshop.build(batch, self._problem.dtype)
            for configuration in batch:
                study.tell(configuration, self._try(bench, configuration, mine))

    def _batch(self, study: Study) -> int:
        """How many configurations to ask for at once: all where order does not matter, few where answers guide the questions."""
        if self._budget.exhaustive:
            return study.remaining
        return min(BATCH, self._budget.trials - study.measured) if self._budget.trials else BATCH

    def _try(self, bench: Bench, configuration: Configuration, mine: ProblemSummary) -> float | None:
        """Check and screen one configuration and store its trial at once; its time, or None when it failed."""
        tries = 0
        while True:
            tries += 1
            try:
                instance = self._tools.workshop.instance(configuration, self._problem.dtype)
                screened = screen(bench, instance, self._best_us())
            except Failure as failure:
                self._fail(configuration, failure, mine)
                if tries >= TRIES.get(failure.outcome, DEFAULT_TRIES):
                    self._times[configuration] = None
                    return None
                continue
            outcome = Outcome.PRUNED if screened.far_behind else Outcome.OK
            time_us = median(screened.round.samples_us)
            self._ids[configuration] = self._record(
                configuration, outcome, instance=instance, check=screened.check, rounds=(screened.round,)
            )
            self._times[configuration] = time_us
            self._mine.add(configuration)
            mine.outcomes[outcome] += 1
            self._tools.watcher.trial(mine, configuration, outcome, time_us, self._best_us())
            return time_us

    def _fail(self, configuration: Configuration, failure: Failure, mine: ProblemSummary) -> None:
        self._record(configuration, failure.outcome, message=failure.message)
        mine.outcomes[failure.outcome] += 1
        mine.failures[f"{failure.outcome}: {failure.message}"] += 1
        self._tools.watcher.trial(mine, configuration, failure.outcome, None, self._best_us())

    def _record(self, configuration: Configuration, outcome: Outcome, **evidence: object) -> int:
        tools = self._tools
        instance = tools.workshop.find(configuration, self._problem.dtype)
        return tools.database.record(
            tools.run_id,
            self._problem,
            configuration,
            instance.template_sha if instance else self._shas[configuration.version],
            outcome,
            replayed=tools.backend.replayed,
            **evidence,  # type: ignore[arg-type]
        )

    def _best_us(self) -> float | None:
        return min((us for us in self._times.values() if us is not None), default=None)

    def _race(self, bench: Bench, mine: ProblemSummary) -> None:
        screened = {c: us for c, us in self._times.items() if us is not None}
        contenders = Race.contenders(screened)
        self._tools.workshop.build(contenders, self._problem.dtype)
        self._tools.watcher.racing(mine, len(contenders))

        def failed(configuration: Configuration, failure: Failure) -> None:
            self._tools.database.finish(self._ids[configuration], failure.outcome, failure.message)
            mine.failures[f"{failure.outcome}: {failure.message}"] += 1

        instances: dict[Configuration, Instance] = {}
        for configuration in contenders:
            try:
                instances[configuration] = self._tools.workshop.instance(configuration, self._problem.dtype)
            except Failure as failure:  # it was built and timed by an earlier run, and cannot be built now
                failed(configuration, failure)
        racing = {c: us for c, us in contenders.items() if c in instances}
        Race(bench, instances, seed=self._tools.seed, save=self._save, failed=failed).run(racing)

    def _save(self, taken: Mapping[Configuration, Round]) -> None:
        """Store a round of the race, all of it or nothing.

        What an earlier run tried gets a trial of this run, so that no trial mixes the samples of two runs.
        """
        with self._tools.database.write():
            self._tools.database.add_rounds({self._ids[c]: samples for c, samples in taken.items() if c in self._mine})
            for configuration in taken.keys() - self._mine:
                built = self._tools.workshop.instance(configuration, self._problem.dtype)
                instance = built if built.binary else None
                self._ids[configuration] = self._record(configuration, Outcome.OK, instance=instance, rounds=(taken[configuration],))
        self._mine.update(taken)

    def _note_copy(self, bench: Bench, mine: ProblemSummary) -> None:
        mine.copy_us = bench.copy_us
        if mine.copy_us is not None:
            self._tools.database.record_copy(self._tools.run_id, self._problem, mine.copy_us)

    def _settle(self, mine: ProblemSummary) -> None:
        """Derive the best from everything that is stored by now, whether the race was finished or not."""
        order = {c: i for i, c in enumerate(self._tools.operation.configurations())}
        found = candidates(self._stored(), order)
        if not found:
            return
        mine.choice = choose(found)
        mine.confirmed = any(r.kind == "final" for t in self._stored() for r in t.rounds)
        self._store_best(mine, mine.choice)

    def _store_best(self, mine: ProblemSummary, choice: Choice) -> None:
        tools = self._tools
        instance = tools.workshop.find(choice.configuration, self._problem.dtype)
        if instance is not None and instance.binary and not tools.backend.device.is_emulator:
            tools.database.store_binary(instance)
        settled = Settled(
            configuration=choice.configuration,
            trial_id=self._ids[choice.configuration],
            time_us=choice.time_us,
            ci_low_us=choice.low_us,
            ci_high_us=choice.high_us,
            spread=choice.spread,
            tried=len(self._times),
            bytes_moved=tools.operation.bytes_moved(self._problem),
            state="confirmed" if mine.confirmed else "provisional",
            runner_up=choice.runner_up,
            runner_up_us=choice.runner_up_us,
            gap=choice.gap,
            beyond_noise=choice.beyond_noise,
            copy_us=mine.copy_us,
            space_sha=self._space_sha(),
        )
        tools.database.settle(tools.run_id, tools.backend.device, tools.backend.timing, self._problem, settled)

    def _space_sha(self) -> str:
        lines = sorted(f"{c} {self._shas[c.version]}" for c in self._space)
        return hashlib.sha256("\n".join(lines).encode()).hexdigest()

    @cached_property
    def _final(self) -> Settled | None:
        """The stored best, if it is confirmed and was chosen from this very space."""
        backend = self._tools.backend
        stored = self._tools.database.settled(backend.device, backend.timing, self._problem)
        known = stored is not None and stored.state == "confirmed" and stored.space_sha == self._space_sha()
        return stored if known else None

    def _recall(self, mine: ProblemSummary, stored: Settled) -> None:
        mine.choice = Choice(
            stored.configuration,
            stored.time_us,
            stored.ci_low_us,
            stored.ci_high_us,
            stored.spread,
            stored.runner_up,
            stored.runner_up_us,
            stored.beyond_noise,
        )
        mine.copy_us, mine.confirmed = stored.copy_us, True
