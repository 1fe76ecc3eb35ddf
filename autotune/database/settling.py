"""Which configuration the stored trials of a problem settle on, by their final race and by what still has to run one."""

from collections.abc import Mapping, Sequence

from autotune.choice import Choice, candidates, choose, in_a_final
from autotune.configuration import Configuration
from autotune.database.read import StoredTrial
from autotune.statistics import median

Order = Mapping[Configuration, int]  # the place of each configuration in the order in which they are declared

APART = 0.01  # repeated runs of one GPU agree within it, and a file that is shipped counts it as a tie


def decide(trials: Sequence[StoredTrial], allowed: Order) -> tuple[Choice, bool] | None:
    """Which of the `allowed` configurations is best by these trials, and whether a final race confirms it; None where none was timed.

    What led a race that was broken off, and was refused while the others had their final, leads them still: its own final is to come.
    """
    found = candidates(trials, allowed)
    if not found:
        return None
    choice = choose(found)
    if not in_a_final(trials, allowed):
        return choice, False
    ahead = [c for c in candidates([t for t in trials if _leads(t, trials, choice)], allowed) if _faster(c.time_us, choice.time_us)]
    if not ahead:
        return choice, True
    return choose([*ahead, *(c for c in found if c.configuration == choice.configuration)]), False


def _leads(trial: StoredTrial, trials: Sequence[StoredTrial], choice: Choice) -> bool:
    """Whether it raced, was in no final, and did not lose to the chosen one in a race of the same run."""
    if not trial.outcome.timed or not trial.evidence or trial.evidence[0].kind != "race" or trial.configuration == choice.configuration:
        return False
    if any(t.evidence and t.evidence[0].kind == "final" for t in trials if t.configuration == trial.configuration):
        return False
    met = [r for t in trials if (t.run_id, t.configuration) == (trial.run_id, choice.configuration) for r in t.rounds if r.kind == "race"]
    times = [median(r.samples_us) for r in met]
    return not times or _faster(trial.time_us or 0.0, median(times))


def _faster(time_us: float, other_us: float) -> bool:
    return time_us * (1 + APART) < other_us
