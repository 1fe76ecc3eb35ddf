"""A study: the search of one problem on one device."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from autotune.configuration import Configuration
from autotune.search.proposal import Proposer
from autotune.search.space import Space, parameters

if TYPE_CHECKING:
    import optuna


Times = Mapping[Configuration, float | None]


class Study:
    """Asks for configurations of `configurations` to be measured, each at most once, the most promising first.

    Times are microseconds; None stands for a configuration that failed. `known` is what was measured on this very problem, `priors` are
    times that only hint at it: neighbouring problems, other devices, or a kernel that has changed since, the nearest first.
    `distances` says how far each of them is, 0 for as good as the problem itself; left out, they count 1, 2, 3 …
    `suggested` are configurations that somebody proposes without any measurement, the best first; those not in the set are ignored.
    Configurations of `known` that are not in the set are ignored; of `priors`, they tell of their like. The same arguments and the same
    answers give the same questions.
    """

    def __init__(
        self,
        configurations: Sequence[Configuration],
        *,
        seed: int,
        known: Times | None = None,
        priors: Sequence[Times] = (),
        distances: Sequence[float] | None = None,
        suggested: Sequence[Configuration] = (),
    ) -> None:
        allowed = dict.fromkeys(configurations)
        self._allowed = len(allowed)
        self._space = Space([*allowed, *(configuration for prior in priors for configuration in prior)])
        hints = [{self._space.index[configuration]: time for configuration, time in prior.items()} for prior in priors]
        advised = [self._space.index[configuration] for configuration in suggested if configuration in allowed]
        self._proposer = Proposer(self._space, self._allowed, seed, hints, _distances(distances, len(hints)), advised)
        self._planned: list[int] = []
        self._trials: dict[int, optuna.Trial] = {}
        self._start_optuna()
        for configuration, time_us in (known or {}).items():
            if configuration in allowed:
                self.tell(configuration, time_us)

    @property
    def best(self) -> tuple[Configuration, float] | None:
        """The fastest configuration told so far and its time in microseconds; None when none has worked yet."""
        found = self._proposer.best
        return None if found is None else (self._space.configurations[found[0]], found[1])

    @property
    def measured(self) -> int:
        """How many configurations have been told, failures included."""
        return len(self._proposer.told)

    @property
    def remaining(self) -> int:
        """How many configurations are left to ask for."""
        return self._proposer.remaining

    def ask(self, count: int = 1) -> list[Configuration]:
        """The next configurations to measure, at most `count`, never one asked or told before; empty when none is left."""
        self._planned = self._proposer.propose(count)[::-1]
        return [self._start_trial() for _ in range(len(self._planned))]

    def tell(self, configuration: Configuration, time_us: float | None) -> None:
        """Records the time of a configuration, or None when it failed; telling one again replaces what was known of it.

        Raises KeyError for a configuration outside the set and ValueError for a time that is not a positive number.
        """
        index = self._space.index[configuration]
        if index >= self._allowed:
            raise KeyError(configuration)
        if time_us is not None and not (time_us > 0 and math.isfinite(time_us)):
            raise ValueError(f"{time_us} us of {configuration} is not a time; tell a positive number, or None for a failure")
        self._proposer.tell(index, time_us)
        self._record(index, time_us)

    def expected_gain(self) -> float:
        """By which share of the best time the rest of the search may be expected to improve it, 0 … 1."""
        return self._proposer.expected_gain()

    def _choose(self) -> int:
        return self._planned.pop() if self._planned else self._proposer.propose(1)[0]

    def _start_optuna(self) -> None:
        import optuna

        from autotune.search.sampler import EnumeratedSampler

        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self._sampler = EnumeratedSampler(self._space, self._choose)
        self.optuna = optuna.create_study(sampler=self._sampler)

    def _start_trial(self) -> Configuration:
        trial = self.optuna.ask()
        index = self._sampler.chosen[trial.number]
        configuration = self._space.configurations[index]
        for name in parameters(configuration):
            trial.suggest_categorical(name, self._space.values[name])
        self._trials[index] = trial
        return configuration

    def _record(self, index: int, time_us: float | None) -> None:
        import optuna

        state = optuna.trial.TrialState.FAIL if time_us is None else optuna.trial.TrialState.COMPLETE
        trial = self._trials.pop(index, None)
        if trial is not None:
            self.optuna.tell(trial, time_us, state=state)
            return
        shown = parameters(self._space.configurations[index])
        distributions = {name: self._sampler.distributions[name] for name in shown}
        self.optuna.add_trial(optuna.create_trial(state=state, params=shown, distributions=distributions, value=time_us))


def _distances(given: Sequence[float] | None, count: int) -> Sequence[float]:
    if given is None:
        return [1.0 + i for i in range(count)]
    if len(given) != count:
        raise ValueError(f"{len(given)} distances for {count} priors; give one each")
    return given
