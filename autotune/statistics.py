"""What is said about a handful of times: their median, their spread, and how sure the median is."""

from collections.abc import Sequence
from math import comb
from statistics import median as _median


def median(times_us: Sequence[float]) -> float:
    """The median of at least one time.

    >>> median([3.0, 1.0, 2.0])
    2.0
    """
    return float(_median(times_us))


def spread(times_us: Sequence[float]) -> float:
    """The interquartile range as a fraction of the median; 0 for fewer than four times.

    A slow outlier, of which any shared machine has a few, does not move it.

    >>> spread([1.0, 1.0, 1.0, 9.0, 1.0])
    0.0
    """
    if len(times_us) < 4:
        return 0.0
    ordered = sorted(times_us)
    quarter = len(ordered) // 4
    return (ordered[-1 - quarter] - ordered[quarter]) / median(ordered)


LEAST_SURE = 6  # fewer times have no interval of 95 %: even from the least to the greatest the median of five is missed in 6 % of cases


def confidence_interval(times_us: Sequence[float], level: float = 0.95) -> tuple[float, float]:
    """An interval that holds the true median with probability `level` at least, whatever the distribution of the times.

    It runs between two order statistics chosen by the binomial distribution (Conover, Practical Nonparametric Statistics, 3.2).
    Fewer than LEAST_SURE times cannot reach 95 %; the interval is then from the least to the greatest.

    >>> confidence_interval([5.0, 1.0, 2.0, 4.0, 3.0, 6.0, 7.0, 8.0])
    (1.0, 8.0)
    """
    ordered = sorted(times_us)
    count = len(ordered)
    below = 0.0  # probability that the true median lies under ordered[rank]
    rank = 0
    while rank < (count - 1) // 2:
        below += comb(count, rank) / 2**count
        if below + comb(count, rank + 1) / 2**count > (1 - level) / 2:
            break
        rank += 1
    return ordered[rank], ordered[count - 1 - rank]
