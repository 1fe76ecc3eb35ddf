"""What a sweep found, in words and with as many digits as it is sure of."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import floor, log10

from autotune.choice import Choice
from autotune.cli.output import counted, microseconds, percent
from autotune.configuration import Configuration
from autotune.trial import Outcome
from autotune.watch import ProblemSummary, Summary

PROVISIONAL = "provisional: its final race is still to come"
OUTCOMES = {Outcome.PRUNED: "pruned as far behind"}  # what the name alone does not tell
_NUMBER = re.compile(r"0x[0-9a-fA-F]+|(?:(?<!\w)-)?\d+(?:[.,]\d+)*(?:e[+-]?\d+)?")
_COUNTED = re.compile(r"\bN (\w+?)s? (?:is|are)\b")


def measured(time_us: float, half: float | None = None) -> str:
    """A time in microseconds; of one that is only known to `half` of itself up or down, no digit that says nothing.

    >>> measured(79.8), measured(79.8, 0.03), measured(79.8, 0.31), measured(12345.0, 0.31), measured(0.02345, 0.2)
    ('79.80', '79.8', '80', '12,000', '0.023')
    """
    if half is None or half < 0.01 or not time_us:
        return microseconds(time_us)
    digits = 2 if half >= 0.1 else 3
    decimals = digits - 1 - floor(log10(time_us))
    return f"{round(time_us, decimals):,.{max(0, decimals)}f}"


def half_width(time_us: float, low_us: float, high_us: float) -> float | None:
    """Half of a confidence interval, as a fraction of the time; None for one without width, which is that of a single sample."""
    return (high_us - low_us) / 2 / time_us if low_us < high_us else None


def outcomes(counts: Counter[Outcome]) -> str:
    """How often each outcome came, the most frequent first: 96 ok, 2 crashed."""
    return ", ".join(f"{count} {OUTCOMES.get(outcome) or outcome.replace('_', ' ')}" for outcome, count in counts.most_common())


def built(total: int, failed: Mapping[Configuration, str]) -> str:
    """How many of `total` instances were built; of those that failed how many, and why the first did."""
    if not failed:
        return counted(total, "instance")
    first, why = next(iter(failed.items()))
    failing = f"{first} does not compile" if len(failed) == 1 else f"{len(failed):,} do not compile, such as {first}"
    return f"{total - len(failed):,} of {counted(total, 'instance')}; {failing}: {why}"


def failure(trials: int, example: str, configurations: Sequence[Configuration]) -> str:
    """How many configurations failed alike, and why; in brackets the first, how many more, and how many trials if some were tried again."""
    if not configurations:
        return f"{trials} x {example}"
    count = len(configurations)
    more = f" and {count - 1} more" if count > 1 else ""
    again = f", in {trials} trials" if trials > count else ""
    return f"{count} x {example} ({configurations[0]}{more}{again})"


def alike(message: str) -> str:
    """What messages have in common that differ in numbers alone: counts, sizes, addresses, names of configurations and instances.

    >>> alike("1 element is wrong, at row 3, column 0x7f") == alike("12 elements are wrong, at row 40, column 0xa0")
    True
    """
    return _COUNTED.sub(r"N \1 is", _NUMBER.sub("N", message))


def kinds(summary: ProblemSummary) -> list[tuple[int, str, list[Configuration]]]:
    """The failures of a problem, by kind, the most frequent first: how many, what was said of the first of them, whom it befell."""
    found: dict[str, list[str]] = {}
    for message in summary.failures:
        found.setdefault(alike(message), []).append(message)
    told = [
        (sum(summary.failures[m] for m in same), same[0], list(dict.fromkeys(c for m in same for c in summary.culprits.get(m, ()))))
        for same in found.values()
    ]
    return sorted(told, key=lambda kind: -kind[0])


def told_once(failures: Iterable[tuple[str, str, str]]) -> Iterator[str]:
    """A line for each kind of failure, of those given as what failed, where exactly, and why; the most frequent first."""
    found: dict[tuple[str, str], list[tuple[str, str]]] = {}
    for what, where, why in failures:
        found.setdefault((what, alike(why)), []).append((where, why))
    for (what, _), places in sorted(found.items(), key=lambda item: -len(item[1])):
        where, why = places[0]
        yield f"{where}: {why}" if len(places) == 1 else f"{len(places)} x {what}: {why}; first {where}"


def describe(summary: ProblemSummary, *, recorded: bool = False) -> str:
    """One line on what was tried for a problem, what won, and how sure that is. Of a recording no others can be tried."""
    choice, new = summary.choice, counted(summary.new_trials, "new trial")
    blocked = f", {summary.barred} blocked" if summary.barred else ""
    tried = (
        f"{summary.problem}: {new}, {summary.known + summary.done} of {summary.space} {'recorded' if recorded else 'applicable'} "
        f"configurations known{blocked}"
    )
    if choice is None and not summary.space:
        return f"{tried}; there is none to try"
    if choice is None:
        return f"{tried}; nothing was tried" if summary.untouched else f"{tried}; none of them can be used"
    share = f" ({percent(summary.copy_us / choice.time_us)} of copy)" if summary.copy_us else ""
    half = half_width(choice.time_us, choice.low_us, choice.high_us)
    time_us = measured(choice.time_us, half)
    sure = f"{_sure(half, confirmed=summary.confirmed)}, {_verdict(choice, confirmed=summary.confirmed)}"
    return f"{tried}; best {choice.configuration}: {time_us} us{share}, {sure}"


def conclusion(summary: Summary, problems: int) -> str:
    """Two different things: whether each best was compared with its nearest rivals, and whether anything was left untried."""
    untried = problems - summary.whole
    which = ("recorded " if summary.recorded_on else "", f" of {' and '.join(summary.versions)}" if summary.versions else "")
    left, all_tried = "{}configurations{} to try".format(*which), "every {}configuration{} was tried".format(*which)
    if summary.nowhere:
        all_tried = "there is no {}configuration{} to try".format(*which)
    if problems == 1:
        one = summary.problems[0] if summary.problems else None
        why = f": {one.limit}" if one and one.limit else ""
        return f"{_standing(one)}, and {f'there are more {left}{why}' if untried else all_tried}"
    unsure = sum(p.confirmed and p.choice is not None and p.choice.beyond_noise is False for p in summary.problems)
    one_dtype = len({p.problem.dtype for p in summary.problems}) < 2
    each = "size" if one_dtype else "problem"  # a size in two element types is two of them
    bests = f"{summary.confirmed} of {problems} {each}s have a confirmed best"
    if unsure:
        bests += f", {unsure} of them not beyond noise"
    limits = Counter(p.limit for p in summary.problems if p.limit and not p.whole)
    why = ", ".join(f"{limit} ({count})" if len(limits) > 1 else limit for limit, count in limits.most_common())
    return f"{bests}; " + (f"{counted(untried, each)} had more {left}{': ' * bool(why)}{why}" if untried else all_tried)


def _sure(half: float | None, *, confirmed: bool) -> str:
    """The 95 % confidence interval of the median, which fewer samples than those of a final race need not reach."""
    if half is None:
        return "one sample"
    return f"+-{f'{100 * half:.0f} %' if half >= 0.1 else percent(half)}{' with 95 % confidence' if confirmed else ''}"


def _standing(one: ProblemSummary | None) -> str:
    if one is None or one.choice is None:
        return "there is no best"
    if not one.confirmed:
        return "the best is provisional"
    if one.choice.beyond_noise is None:
        return "the best had no rival near enough for a final race"
    if one.choice.beyond_noise:
        return "the best won its final race"
    return "the best tied with others in its final race" if one.choice.tied else "the best won its final race, but not beyond noise"


def _verdict(choice: Choice, *, confirmed: bool) -> str:
    rival = choice.runner_up
    if rival is None or choice.gap is None:
        return "no other came near enough to be measured again beside it" if confirmed else PROVISIONAL
    ahead = f"{percent(choice.gap)} behind" if choice.gap >= 0 else f"{percent(-choice.gap)} ahead"
    if choice.tied:
        return f"{'final race' if confirmed else PROVISIONAL}: a tie with {rival}, {ahead}, of which the one declared first is taken"
    sure = "winner of the final race" if confirmed else PROVISIONAL
    return f"{sure}; next {rival} {ahead}{'' if choice.beyond_noise else ', which is not beyond noise'}"
