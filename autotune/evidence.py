"""What the trials that are stored of a problem are worth today: evidence, or only a prior.

A time depends on the template and what its definition adds (see `autotune.source`), the compiler's flags, the compiler, the driver, the
device and the protocol. Times of other devices and protocols are never asked for. A trial of another template, another definition or other
flags is of another program, or was checked otherwise: a prior, no more. A trial under another
compiler or driver most likely still holds, so it stays in use until its problem is next tuned; then a sentinel, the best of them, is
measured again, and all of them hold, or none does, as the fastest that was measured again does.
"""

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field

from autotune.configuration import Configuration
from autotune.database import StoredTrial
from autotune.trial import Environment, Outcome

SAME_WITHIN = 0.03  # repeated sweeps of one H200 agree within 1 %; a driver or compiler that changes a kernel moves it by more than this


@dataclass(frozen=True, slots=True)
class Evidence:
    """The stored trials of one problem by what they are worth, and the sentinels that are to be measured before more is known."""

    trials: list[StoredTrial]
    stale: list[StoredTrial] = field(default_factory=list)
    sentinels: list[Configuration] = field(default_factory=list)

    @property
    def outdated(self) -> set[Configuration]:
        """The configurations of which nothing that was measured counts any more: each once, however often it was measured before."""
        return {trial.configuration for trial in self.stale} - {trial.configuration for trial in self.trials}


def weigh(
    trials: Iterable[StoredTrial],
    template_shas: Mapping[str, str],
    flags: str,
    environment: Environment,
    best: Configuration | None = None,
    blocked: Container[Configuration] = (),
) -> Evidence:
    """What `trials`, all of one problem, are worth with these templates (by version), flags, compiler and driver.

    `best` is the configuration that the problem uses, which makes the best sentinel; what is `blocked` makes none, for it must not be
    launched. While a sentinel is not measured, the trials it stands for count as evidence.
    """
    here = _tools(environment)
    now: list[StoredTrial] = []
    stale: list[StoredTrial] = []
    elsewhere: dict[tuple[str, str], list[StoredTrial]] = {}
    for trial in trials:
        if trial.template_sha != template_shas.get(trial.configuration.version) or trial.flags not in ("", flags):
            stale.append(trial)
        elif _tools(trial) == here:
            now.append(trial)
        elif trial.outcome is Outcome.COMPILE_ERROR and trial.compiler != environment.compiler:
            stale.append(trial)  # another compiler may well compile it
        else:
            elsewhere.setdefault(_tools(trial), []).append(trial)
    measured = {trial.configuration: trial for trial in now}
    evidence, sentinels = list(now), []
    for group in elsewhere.values():
        timed = sorted((t for t in group if t.outcome.timed and t.time_us), key=lambda t: t.time_us or 0.0)
        again = next((t for t in timed if t.configuration in measured), None)
        askable = [t.configuration for t in timed if t.configuration not in blocked]
        if askable and again is None:
            sentinels.append(next((c for c in askable if c == best), askable[0]))
        if again is None or _agree(again, measured[again.configuration]):
            evidence += group
        else:
            stale += group
    return Evidence(sorted(evidence, key=lambda trial: trial.trial_id), stale, list(dict.fromkeys(sentinels)))


def _tools(where: Environment | StoredTrial) -> tuple[str, str]:
    return where.driver, where.compiler


def _agree(before: StoredTrial, again: StoredTrial) -> bool:
    if not again.outcome.timed or not before.time_us or not again.time_us:
        return False
    return abs(again.time_us / before.time_us - 1) <= SAME_WITHIN
