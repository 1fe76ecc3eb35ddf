"""One problem's tuning: search, check, screen, store; then the race, and which configuration is best."""

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from autotune import source
from autotune.backends import Backend, Bench
from autotune.batches import Batches
from autotune.choice import Choice, candidates, choose, in_a_final
from autotune.configuration import Configuration
from autotune.database import Database, Settled
from autotune.known import Known, look, planned, tries
from autotune.ledger import Ledger
from autotune.operation import Operation
from autotune.priors import priors, suggested
from autotune.problem import Problem
from autotune.race import Race, screen
from autotune.search import Budget, Study
from autotune.settling import Extent, recalled, settled
from autotune.spaces import impossible, space
from autotune.statistics import median
from autotune.trial import Failure, Instance, Outcome, ProblemFailure, Round
from autotune.watch import Attempt, ProblemSummary, Summary, Watcher
from autotune.workshop import Workshop

SMALL_SPACE = 1024  # a space up to this size is measured whole: that takes seconds, and a search could only miss something
SENTINEL_ROUNDS = 3


@dataclass(frozen=True, slots=True)
class Tools:
    """What all problems of one sweep share."""

    operation: Operation
    backend: Backend
    database: Database
    workshop: Workshop
    watcher: Watcher
    ledger: Ledger
    seed: int
    versions: tuple[str, ...]
    budget: Budget | None


class Tuning:
    """Tunes one problem, continuing from whatever the database knows about it."""

    def __init__(self, tools: Tools, problem: Problem, summary: Summary) -> None:
        self._tools = tools
        self._problem = problem
        self._summary = summary
        self._done: ProblemSummary | None = None
        self._started = time.monotonic()
        self._mine: set[Configuration] = set()  # those with a trial of this run that has not failed
        self._enough = False  # whether the search ended because too little was still to be gained

    def run(self) -> None:
        """Measure until the budget is spent, then settle; raises KeyboardInterrupt after storing what there is."""
        self._started = time.monotonic()
        tools, known = self._tools, self._known
        size, tried = len(self._space), len(known.times)
        blocked, stale = len(known.blocked.intersection(self._space)), len(known.evidence.outdated)
        self._done = mine = ProblemSummary(self._problem, size, tried, blocked, stale, planned(self._budget, size, tried))
        mine.impossible = impossible(tools.operation, tools.backend, self._problem, self._asked_for())
        self._summary.problems.append(mine)
        tools.watcher.problem(mine)
        final = self._final()
        if final is not None:
            self._recall(mine, final)
            self._note_limit(self._study(), mine)
            tools.watcher.settled(mine)
        else:
            try:
                with tools.backend.open(tools.operation, self._problem, seed=tools.seed) as bench:
                    self._note_copy(bench, mine)
                    self._ask_sentinels(bench, mine)
                    if self._final() is None:
                        self._search(bench, mine)
                        self._race(bench, mine)
            except ProblemFailure as failure:  # said, and the next one is taken
                mine.failures[failure.message] += 1
            except Failure as failure:
                mine.failures[f"it cannot be set up: {failure.message}"] += 1
            finally:  # Ctrl-C too leaves the best of what was measured, and says which it is
                self._settle(mine)
                tools.watcher.settled(mine)

    def reconsider(self) -> None:
        """Settle again when what was chosen has been blocked since, for what it did on another problem."""
        if self._done and self._done.choice and self._done.choice.configuration in self._look().blocked:
            self._settle(self._done)
            self._tools.watcher.settled(self._done)

    def certain(self) -> list[Configuration]:
        """The configurations that are going to be measured whatever happens on the way."""
        known = self._known
        unknown = [c for c in self._space if c not in known.times] if self._budget.exhaustive else []
        return unknown + known.evidence.sentinels

    @cached_property
    def _space(self) -> list[Configuration]:
        return space(self._tools.operation, self._tools.backend, self._problem, self._tools.versions)

    def _asked_for(self) -> tuple[str, ...]:
        """The versions that should have something to try: those that were named, and where nothing at all is to be tried every one."""
        return self._tools.versions or (() if self._space else tuple(self._tools.operation.versions))

    @cached_property
    def _shas(self) -> dict[str, str]:
        """The hash of each version's present template and definition."""
        return {name: template.sha for name, template in source.templates(self._tools.operation)}

    @cached_property
    def _budget(self) -> Budget:
        return self._tools.budget or Budget(exhaustive=len(self._space) <= SMALL_SPACE)

    @cached_property
    def _known(self) -> Known:
        return self._look()

    def _look(self) -> Known:
        """What the database knows of the problem at this moment."""
        tools = self._tools
        return look(tools.database, tools.backend, tools.operation, self._problem, self._space, self._shas)

    def _ask_sentinels(self, bench: Bench, mine: ProblemSummary) -> None:
        """Time again what tells whether the times taken with another driver or compiler still hold, and look at them anew."""
        sentinels = self._known.evidence.sentinels
        if not sentinels:
            return
        self._tools.workshop.build(sentinels, self._problem.dtype)
        right = [sentinel for sentinel in sentinels if self._try(bench, sentinel, mine) is not None]
        self._new_race(bench, right, mine).meet(right, "race", SENTINEL_ROUNDS)
        self._known = self._look()
        mine.known, mine.stale = len(self._known.times), len(self._known.evidence.outdated)

    def _search(self, bench: Bench, mine: ProblemSummary) -> None:
        study, batches, budget = self._study(), Batches(self._budget, self._started), self._budget
        if study.remaining and not self._was_enough() and batches.late(now := time.monotonic()):
            mine.late_s = now - self._started
        while not (self._was_enough() or budget.spent(study, self._started, time.monotonic())):
            if budget.enough(study):
                self._enough = True
                break
            batch = study.ask(batches.size(study, time.monotonic()))
            self._tools.workshop.build(batch, self._problem.dtype)
            for place, configuration in enumerate(batch):
                if place and batches.late(time.monotonic()):
                    break
                study.tell(configuration, self._try(bench, configuration, mine))
                mine.done += 1
        self._note_limit(study, mine)

    def _note_limit(self, study: Study, mine: ProblemSummary) -> None:
        """Which limit ended the search, where it left something untried."""
        if study.remaining:
            reached = self._budget.reached(study, self._started, time.monotonic())
            mine.limit = reached or (self._budget.little if self._enough or self._was_enough() else "")

    def _study(self) -> Study:
        tools, problem, known = self._tools, self._problem, self._known
        if self._budget.exhaustive:
            return Study(self._space, seed=tools.seed, known=known.times)
        hints = priors(tools.database, tools.backend, tools.operation, problem, self._space, known.evidence.stale)
        return Study(
            self._space,
            seed=tools.seed,
            known=known.times,
            priors=[times for _, times in hints],
            distances=[far for far, _ in hints],
            suggested=suggested(tools.operation, problem, tools.backend, self._space),
        )

    def _try(self, bench: Bench, configuration: Configuration, mine: ProblemSummary) -> float | None:
        """Check and screen one configuration and store its trial at once; its time, or None when it failed too often."""
        tools, known = self._tools, self._known
        while True:
            try:
                instance = tools.workshop.instance(configuration, self._problem.dtype)
                screened = screen(bench, instance, known.best_us())
            except ProblemFailure:
                raise
            except Failure as failure:
                tools.ledger.failure(self._problem, configuration, self._sha(configuration), failure)
                mine.outcomes[failure.outcome] += 1
                over = self._failed(configuration, failure, mine)
                tools.watcher.trial(mine, Attempt(configuration, failure.outcome, None, known.best_us(), failure.message))
                if over:
                    return None
                continue
            outcome = Outcome.PRUNED if screened.far_behind else Outcome.OK
            time_us = median(screened.round.samples_us)
            stored = tools.ledger.trial(self._problem, configuration, outcome, instance, screened.check, screened.round)
            known.ids[configuration], known.times[configuration] = stored, time_us
            self._mine.add(configuration)
            mine.outcomes[outcome] += 1
            tools.watcher.trial(mine, Attempt(configuration, outcome, time_us, known.best_us()))
            return time_us

    def _failed(self, configuration: Configuration, failure: Failure, mine: ProblemSummary) -> bool:
        """Count a failure; whether the configuration has now failed too often, and is blocked."""
        known = self._known
        why = f"{failure.outcome}: {failure.message}"
        mine.failures[why] += 1
        mine.culprits.setdefault(why, {})[configuration] = None
        known.failed[configuration] += 1
        if known.failed[configuration] < tries(failure.outcome):
            return False
        known.times[configuration] = None
        mine.given_up += 1
        self._tools.ledger.block(self._problem, configuration, self._sha(configuration), failure)
        return True

    def _sha(self, configuration: Configuration) -> str:
        """The hash of the template and definition that the configuration is of."""
        instance = self._tools.workshop.find(configuration, self._problem.dtype)
        return instance.template_sha if instance else self._shas[configuration.version]

    def _race(self, bench: Bench, mine: ProblemSummary) -> None:
        contenders = Race.contenders({c: us for c, us in self._known.times.items() if us is not None})
        self._tools.workshop.build(contenders, self._problem.dtype)
        self._tools.watcher.racing(mine, len(contenders))
        race = self._new_race(bench, contenders, mine)
        race.run({c: us for c, us in contenders.items() if c in race.instances})

    def _new_race(self, bench: Bench, configurations: Iterable[Configuration], mine: ProblemSummary) -> Race:
        def failed(configuration: Configuration, failure: Failure) -> None:
            if failure.outcome is not Outcome.COMPILE_ERROR:  # an earlier run built and timed it, and it cannot be built now
                self._tools.ledger.finish(self._known.ids[configuration], failure)
                self._mine.discard(configuration)
            self._failed(configuration, failure, mine)

        instances: dict[Configuration, Instance] = {}
        for configuration in configurations:
            try:
                instances[configuration] = self._tools.workshop.instance(configuration, self._problem.dtype)
            except Failure as failure:
                failed(configuration, failure)
        return Race(bench, instances, seed=self._tools.seed, save=self._save, failed=failed)

    def _save(self, taken: Mapping[Configuration, Round]) -> None:
        """Store a round of the race."""
        known, dtype = self._known, self._problem.dtype
        instances = {c: self._tools.workshop.instance(c, dtype) for c in taken}
        ids = {c: known.ids[c] for c in taken if c in self._mine}
        known.ids.update(self._tools.ledger.race_round(self._problem, taken, ids, instances))
        self._mine.update(taken)

    def _note_copy(self, bench: Bench, mine: ProblemSummary) -> None:
        mine.copy_us = bench.copy_us
        if mine.copy_us is not None:
            self._tools.ledger.copy(self._problem, mine.copy_us)

    def _settle(self, mine: ProblemSummary) -> None:
        """Derive the best from everything that is stored by now, whether the race was finished or not."""
        known = self._look()
        order = {c: i for i, c in enumerate(self._tools.operation.configurations()) if c not in known.blocked}
        found = candidates(known.evidence.trials, order)
        if not found:
            return
        mine.choice = choose(found)
        mine.confirmed = in_a_final(known.evidence.trials, order) and not known.evidence.sentinels
        self._store_best(mine, mine.choice, known)

    def _store_best(self, mine: ProblemSummary, choice: Choice, known: Known) -> None:
        tools, moved = self._tools, self._tools.operation.bytes_moved(self._problem)
        best = settled(choice, known, moved, mine.copy_us, self._extent(known), confirmed=mine.confirmed)
        tools.ledger.settle(self._problem, best, tools.workshop.find(choice.configuration, self._problem.dtype))

    def _extent(self, known: Known) -> Extent:
        """How far the space is searched by now, an earlier search counted in unless more or less is known since."""
        gain = self._budget.until_gain if self._enough else None
        before = self._searched_before
        if gain is None and (before.space, before.tried) == (self._unsearched.space, len(known.times)):
            gain = before.gain
        return self._unsearched if gain is None else replace(self._unsearched, tried=len(known.times), gain=gain)

    def _was_enough(self) -> bool:
        """Whether an earlier search of this space, since which no more and no less is known, left too little to be gained."""
        gain = self._extent(self._known).gain
        return gain is not None and self._budget.until_gain is not None and gain <= self._budget.until_gain

    @cached_property
    def _unsearched(self) -> Extent:
        return Extent.of(self._space, self._shas)

    @cached_property
    def _searched_before(self) -> Extent:
        stored = self._stored()
        return Extent.read(stored.space_sha) if stored else Extent("")

    def _stored(self) -> Settled | None:
        return self._tools.database.settled(self._tools.backend.device, self._tools.backend.timing, self._problem)

    def _final(self) -> Settled | None:
        """The stored best when nothing is left to measure: confirmed, chosen from this very space, with today's driver and compiler."""
        stored, known = self._stored(), self._known
        if stored is None or stored.state != "confirmed" or Extent.read(stored.space_sha).space != self._unsearched.space:
            return None
        if known.evidence.sentinels or known.times.get(stored.configuration) is None:
            return None
        return stored if self._was_enough() or self._budget.done(self._study(), self._started, self._started) else None

    def _recall(self, mine: ProblemSummary, stored: Settled) -> None:
        mine.choice, mine.copy_us, mine.confirmed = recalled(stored), stored.copy_us, True
