"""How rows divide into packs of `vector` elements that are aligned to their size: what definitions of kernels that load such packs ask.

Edges are "exact" when every row starts and ends where a pack does, and "masked" when the first and the last pack of a row reach over its
ends. A masked instance would compute exact rows too, a little slower, so it is not offered for them.

A condition that holds comes without a reason: these are asked within microseconds, and a reason takes as long to word as to find out.
"""

from math import gcd

from autotune.problem import Problem

NARROWEST_ACCESS_BYTES = 4
WIDEST_ACCESS_BYTES = 16

Condition = tuple[bool, str]
HOLDS: Condition = (True, "")


def loadable(problem: Problem, vector: int) -> Condition:
    """Whether a pack is as wide as an access can be: 4, 8 or 16 bytes."""
    access_bytes = vector * problem.element_bytes
    if NARROWEST_ACCESS_BYTES <= access_bytes <= WIDEST_ACCESS_BYTES:
        return HOLDS
    return (
        False,
        f"vector {vector} of {problem.dtype} is {access_bytes} bytes, and an access has {NARROWEST_ACCESS_BYTES} to {WIDEST_ACCESS_BYTES}",
    )


def placed(problem: Problem, vector: int, edges: str) -> Condition:
    """Whether rows lie as `edges` says, and input and output at the same place within a pack."""
    whole = _exact(problem, vector)
    if edges == "exact":
        return HOLDS if whole else (False, f"rows do not start and end where packs of {vector} do, which edges exact needs")
    if whole:
        return False, f"rows start and end where packs of {vector} do, so edges exact is the faster way"
    return HOLDS if _alike(problem, vector) else (False, f"input and output may start at different places within a pack of {vector}")


def per_row(problem: Problem, vector: int, edges: str) -> int:
    """The most packs that a row takes.

    >>> per_row(Problem("softmax", 1, 4096), 4, "exact"), per_row(Problem("softmax", 2, 4095), 4, "masked")
    (1024, 1025)
    """
    if edges == "exact":
        return problem.cols // vector
    places = gcd(vector, problem.input_alignment // problem.element_bytes, problem.input_stride if problem.rows > 1 else 0)
    return -(-(vector - places + problem.cols) // vector)


def fewest(row_packs: int, threads: int, items: int, values: tuple[int | str, ...]) -> Condition:
    """Whether `items` packs a thread are the fewest of `values` with which `threads` threads hold a row.

    >>> fewest(1024, 256, 4, (1, 2, 4, 8))[0], fewest(1024, 256, 8, (1, 2, 4, 8))[0]
    (True, False)
    >>> fewest(1024, 256, 1, (1, 2, 4, 8))[1]
    'a row takes 1024 packs, and 256 threads with 1 each hold 256'
    """
    needed = -(-row_packs // threads)
    if items < needed:
        return False, f"a row takes {row_packs} packs, and {threads} threads with {items} each hold {threads * items}"
    fewer = [value for value in values if isinstance(value, int) and needed <= value < items] if needed < items else ()
    return (False, f"{min(fewer)} a thread hold a row of {row_packs} packs, which is fewer than {items}") if fewer else HOLDS


def _exact(problem: Problem, vector: int) -> bool:
    return problem.cols % vector == 0 and problem.alignment_bytes % (vector * problem.element_bytes) == 0


def _alike(problem: Problem, vector: int) -> bool:
    if problem.in_place:
        return True
    access_bytes = vector * problem.element_bytes
    pointers = problem.input_alignment % access_bytes == problem.output_alignment % access_bytes == 0
    return pointers and (problem.rows == 1 or (problem.input_stride - problem.output_stride) % vector == 0)
