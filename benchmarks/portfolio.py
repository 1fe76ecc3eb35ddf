"""Few kernels for many problems: where several tie, the one that is needed anyway.

The choice is among finalists, which were timed against each other. Each problem keeps a kernel within the tie of its fastest, which stays
on record as the runner-up with its time: the gap is negative then.
"""

from collections.abc import Collection, Mapping
from dataclasses import replace

from autotune.choice import Candidate, candidates, choose
from autotune.configuration import Configuration
from autotune.database import Database, Settled
from autotune.database.read import StoredTrial
from autotune.database.rebuild import templates_here
from autotune.device import Device
from autotune.operation import Operation
from autotune.problem import Problem
from autotune.statistics import confidence_interval, spread
from autotune.trial import TimingProtocol

Kernel = tuple[Configuration, str]  # a configuration and the element type that it is compiled for


def cover(offers: Mapping[Problem, Collection[Kernel]], needed: Collection[Kernel]) -> set[Kernel]:
    """`needed`, and as few more kernels as a greedy choice finds, such that each problem is offered one of them."""
    chosen = set(needed)
    open_problems = {problem: set(offered) for problem, offered in offers.items() if not chosen.intersection(offered)}
    while open_problems:
        counts: dict[Kernel, int] = {}
        for offered in open_problems.values():
            for kernel in offered:
                counts[kernel] = counts.get(kernel, 0) + 1
        best = min(counts, key=lambda kernel: (-counts[kernel], kernel))
        chosen.add(best)
        open_problems = {problem: offered for problem, offered in open_problems.items() if best not in offered}
    return chosen


def prefer(
    database: Database,
    operation: Operation,
    device: Device,
    timing: TimingProtocol,
    needed: set[Kernel],
    strict: Collection[tuple[int, int]],
    tie: float,
) -> str:
    """Settle every problem but those of the sizes `strict` for a kernel of a small cover; adds that cover to `needed`.

    Returns what it cost, in a sentence.
    """
    place = {c: i for i, c in enumerate(operation.configurations())}
    present = templates_here(operation).values()
    trials: dict[Problem, list[StoredTrial]] = {}
    raced: dict[Problem, list[Candidate]] = {}
    tied: dict[Problem, list[Candidate]] = {}
    for problem in database.problems_measured(operation.name, device, timing):
        trials[problem] = database.trials(device, timing, problem)
        blocked = database.blocked(device, operation.name, problem.dtype, problem, present)
        raced[problem] = found = candidates(trials[problem], {c: i for c, i in place.items() if c not in blocked})
        limit_us = (1 + tie) * min(candidate.time_us for candidate in found)
        settled = choose(found).configuration
        free = (problem.rows, problem.cols) not in strict
        tied[problem] = [c for c in found if c.configuration == settled or (free and c.time_us <= limit_us)]
    best = {(choose(offered).configuration, problem.dtype) for problem, offered in tied.items()}
    needed |= cover({p: [(c.configuration, p.dtype) for c in offered] for p, offered in tied.items()}, needed)
    slower = []
    for problem, offered in tied.items():
        before = database.settled(device, timing, problem)
        assert before is not None
        chosen = min((c for c in offered if (c.configuration, problem.dtype) in needed), key=lambda c: (c.time_us, c.order))
        slower.append(chosen.time_us / min(c.time_us for c in raced[problem]) - 1)
        if chosen.configuration != before.configuration:
            others = [c for c in raced[problem] if c is not chosen]
            _settle(database, device, timing, problem, trials[problem], before, chosen, min(others, key=lambda c: (c.time_us, c.order)))
    changed = sum(loss > 0 for loss in slower)
    return (
        f"Of kernels that tie within {100 * tie:g} %, one that is needed anyway was preferred: {len(best)} best kernels became a part of "
        f"{len(needed)} in all, at {changed} of {len(slower)} problems not the very fastest, by {100 * max(slower):.2f} % at most and "
        f"{100 * sum(slower) / len(slower):.3f} % on average."
    )


def _settle(
    database: Database,
    device: Device,
    timing: TimingProtocol,
    problem: Problem,
    trials: list[StoredTrial],
    before: Settled,
    chosen: Candidate,
    runner_up: Candidate,
) -> None:
    mine = [t for t in trials if t.configuration == chosen.configuration and t.outcome.timed]
    trial = max(mine, key=lambda t: (any(r.kind == "final" for r in t.rounds), t.trial_id))
    low_us, high_us = confidence_interval(chosen.samples_us)
    after = replace(
        before,
        configuration=chosen.configuration,
        trial_id=trial.trial_id,
        time_us=chosen.time_us,
        ci_low_us=low_us,
        ci_high_us=high_us,
        spread=spread(chosen.samples_us),
        runner_up=runner_up.configuration,
        runner_up_us=runner_up.time_us,
        gap=runner_up.time_us / chosen.time_us - 1,
        beyond_noise=False,
    )
    database.settle(trial.run_id, device, timing, problem, after)
