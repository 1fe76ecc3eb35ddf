"""Which problems a search starts from: those measured already that are most like the one to be tuned."""

from collections.abc import Container, Iterable, Iterator, Mapping
from math import gcd, log2

from autotune.configuration import Configuration, Value
from autotune.operation import Operation
from autotune.problem import Problem

NEIGHBOURS = 3
COLUMNS_OVER_ROWS = 4.0  # doubling the length of a row changes what is fast as much as sixteen times as many rows do
ALIGNMENT = 2.0  # for each factor of two, up to a vector of 8, that divides the length of the one's rows and not of the other's

CARRIED = 2.0  # times the fastest of a neighbour: what is slower is not made for another problem, and only teaches what to avoid


def distance(a: Problem, b: Problem) -> float:
    """How far two problems of one operation and element type are apart; 1 for twice as many rows."""
    apart = _doublings(a.rows, b.rows) + COLUMNS_OVER_ROWS * _doublings(a.cols, b.cols)
    return apart + ALIGNMENT * _doublings(gcd(a.cols, 8), gcd(b.cols, 8))


def nearest(problem: Problem, others: Iterable[Problem]) -> list[Problem]:
    """The few of `others` that are nearest to `problem`, of the same operation and element type, the nearest first."""
    like = [o for o in others if o != problem and (o.operation, o.dtype) == (problem.operation, problem.dtype)]
    return sorted(like, key=lambda other: distance(problem, other))[:NEIGHBOURS]


def carried(
    times: Mapping[Configuration, float], there: Problem, here: Problem, operation: Operation, space: Container[Configuration]
) -> dict[Configuration, float]:
    """`times` measured at `there` with the like of those configurations in `space` that `here` is too different for.

    The fastest kernel of a neighbour often holds rows of that length alone. Its like here has the parameters that follow from the problem
    made for `here`: once with the threads that it has there, and once with the packs a thread; and where it would be of another kind here,
    because its vectors do not divide the row, once more with those that do.
    """
    slowest_us = CARRIED * min(times.values(), default=0.0)
    found = dict(times)
    for configuration, time_us in times.items():
        if time_us <= slowest_us and configuration not in space:
            for like in _made_for(here, there, configuration, operation):
                if like in space and like not in times:
                    found[like] = min(time_us, found.get(like, time_us))
    return found


def _made_for(here: Problem, there: Problem, configuration: Configuration, operation: Operation) -> Iterator[Configuration]:
    version = operation.versions.get(configuration.version)
    if version is None or not version.parameters or not version.declares(configuration):
        return
    family = operation.family(configuration)
    alike = [family, *(relative for relative in operation.relatives(family) if operation.fitted(relative, there) == configuration)]
    for one in alike:
        if (fitted := operation.fitted(one, here)) is not None:
            yield fitted
            if _kind(fitted, operation) != _kind(configuration, operation):
                yield from _of_the_same_kind(one, configuration, here, operation)


def _of_the_same_kind(family: Configuration, configuration: Configuration, here: Problem, operation: Operation) -> Iterator[Configuration]:
    """The likes of `family` made for `here` that handle it as `configuration` did its problem, each with one number changed a little.

    Vectors that divide the rows of a neighbour need masks where rows are odd; what is like it there has narrower vectors, and no masks.
    """
    given = dict(family.parameters)
    for name, values in operation.versions[family.version].parameters.items():
        now = given.get(name)
        if not isinstance(now, int):
            continue
        for number in _around(now, values):
            changed = tuple((of, number if of == name else value) for of, value in family.parameters)
            fitted = operation.fitted(Configuration(family.version, changed), here)
            if fitted is not None and _kind(fitted, operation) == _kind(configuration, operation):
                yield fitted
                break


def _around(number: int, values: Iterable[Value]) -> list[int]:
    """The numbers among `values` other than `number`, the nearest by ratio first."""
    return sorted((v for v in values if isinstance(v, int) and v != number), key=lambda value: _doublings(value, number))


def _kind(configuration: Configuration, operation: Operation) -> list[Value]:
    """What follows from the problem and is no number, such as how the ends of rows are handled."""
    fitted = operation.fitted_parameters.get(configuration.version, ())
    return [value for name, value in configuration.parameters if name in fitted and isinstance(value, str)]


def _doublings(a: int, b: int) -> float:
    return abs(log2(max(a, 1) / max(b, 1)))
