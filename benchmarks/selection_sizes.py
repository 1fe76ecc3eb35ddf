"""The sizes that selection is trained on and judged by: a grid with misaligned rows, and sizes that are never tuned.

Every matrix has at most 512 MB in float32. The lists are fixed: the same sizes on every device and in every year.
"""

import random
from collections.abc import Iterator
from math import log2

Size = tuple[int, int]

MOST_ELEMENTS = 1 << 27
LEAST_ELEMENTS = 1 << 10


def training() -> list[Size]:
    """A grid in log space, a step of two to three in columns and of four in rows, and rows that no vector divides."""
    columns = [2**k for k in range(4, 19)] + [96, 384, 1536, 6144, 24576, 98304]
    # Neighbouring columns take the rows in turns, so that the same number of sizes covers twice as many of them.
    grid = [(4**k << (place % 2), cols) for place, cols in enumerate(sorted(columns)) for k in range(10)]
    wanted = [(rows, cols) for rows, cols in grid if (1 << (10 if rows <= 8 else 12)) <= rows * cols <= MOST_ELEMENTS]
    thinned = [size for place, size in enumerate(wanted) if place % 5 not in (2, 4)]
    odd = [(8192, 33), (200, 129), (30000, 129), (512, 513), (4, 1001), (4096, 1001), (64, 3001), (16, 10007), (2048, 10007), (2, 131071)]
    return list(dict.fromkeys([*thinned, *odd, (700, 131071), (300, 50257), (5000, 4098), (128, 30002)]))


def held_out() -> dict[str, list[Size]]:
    """Sizes that are never tuned, by what is hard about them."""
    trained = set(training())
    sets = {"random": _random(), "hard": _hard(), "models": _models(), "extrapolation": _beyond()}
    return {name: [size for size in sizes if size not in trained] for name, sizes in sets.items()}


def _random() -> list[Size]:
    chance = random.Random(20)
    found: list[Size] = []
    while len(found) < 28:
        rows, cols = round(2 ** chance.uniform(0, 18)), round(2 ** chance.uniform(4, 18))
        if len(found) % 2:
            cols = -(-cols // 8) * 8
        if LEAST_ELEMENTS <= rows * cols <= MOST_ELEMENTS:
            found.append((rows, cols))
    return found


def _hard() -> list[Size]:
    """Next to powers of two, primes, next to the limits of registers and shared memory, and next to whole waves of 132 SMs."""
    near_powers = [
        (65536, 31),
        (32768, 65),
        (10000, 255),
        (10000, 257),
        (3000, 1023),
        (3000, 1025),
        (1500, 4097),
        (500, 16383),
        (50, 65537),
    ]
    primes = [(4099, 37), (6007, 211), (997, 1999), (251, 7919), (37, 104729)]
    limits = [(300, 12288), (300, 12292), (264, 24580), (200, 58112), (200, 58116), (150, 98308), (128, 131076)]
    waves = [(131, 2048), (133, 2048), (133, 32768), (265, 8192), (1057, 4096), (17, 32768), (66, 65536)]
    return [*near_powers, *primes, *limits, *waves]


def _models() -> list[Size]:
    """Attention scores (batch x heads x queries, keys) and logits (tokens, vocabulary) of models in use."""
    attention = [(12 * 197, 197), (16 * 577, 577), (32 * 128, 128), (32 * 512, 512), (32 * 2048, 2048), (8 * 4096, 4096), (32, 3000)]
    attention += [(64, 8000), (32 * 77, 77), (12 * 384, 384), (128 * 49 * 4, 49), (1024, 32000)]
    logits = [(1, 32000), (8, 32000), (512, 32000), (1, 50304), (256, 50304), (16, 100277), (1, 128256), (128, 128256), (512, 151936)]
    return [*attention, *logits, (4, 151936), (64, 256000), (8, 201088), (4096, 1000)]


def _beyond() -> list[Size]:
    return [(1 << 22, 8), (1 << 20, 5), (3_000_000, 20), (1, 1 << 20), (100, 1 << 20), (32, 400_000), (1, 65), (2, 100), (7, 777_777)]


def recorded(most_bytes: int = 2 << 30) -> list[Size]:
    """What the shipped databases are recorded at beside the sizes of most interest: training sizes, models, and the plane filled evenly.

    No matrix exceeds `most_bytes` in float32, and none is held out. Any first part of the list covers the plane, only less densely.
    """
    unseen = {size for sizes in held_out().values() for size in sizes}
    mixed = training()
    random.Random(7).shuffle(mixed)
    parts = [mixed, _served(), list(_spread(225))]
    longest = max(map(len, parts))
    interleaved = [part[place * len(part) // longest] for place in range(longest) for part in parts]
    return [size for size in dict.fromkeys(interleaved) if size not in unseen and 4 * size[0] * size[1] <= most_bytes]


def _served() -> list[Size]:
    """Logits and attention scores as models in use ask for them, other than those held out, and the shortest rows there are."""
    vocabularies = (32064, 49152, 50257, 65024, 100352, 129280, 151936, 152064, 202048, 256128, 262144)
    logits = [(tokens, cols) for place, cols in enumerate(vocabularies) for tokens in ((1, 32, 1024), (4, 128, 2048))[place % 2]]
    attention = [(heads * queries, keys) for heads, queries, keys in ((8, 64, 64), (12, 256, 256), (16, 1024, 1024), (32, 4096, 4096))]
    decoding = [(rows, keys) for rows, keys in ((32, 1024), (256, 2048), (512, 8192), (32, 16384), (1024, 32768), (64, 131072))]
    images = [(16 * 197, 197), (128 * 1000, 1000), (256, 1000), (64 * 64 * 16, 64), (2 * 16 * 4096, 77)]
    fewest = [(1, 1), (1 << 20, 1), (1_000_000, 3), (4096, 7)]
    return [*logits, *attention, *decoding, *images, *fewest]


LIMITS = (32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 12288, 16384, 24576, 32768, 49152, 65536, 98304, 131072, 196608, 262144)


def _spread(count: int) -> Iterator[Size]:
    """Sizes from 1 to a million rows and from 1 to 262144 columns, evenly in log space, by the plastic number's sequence.

    Columns take turns: any number, a multiple of 8, and next to a limit of some version: at it, just below, just above.
    """
    plastic = 1.324717957244746
    made = 0
    for place in range(1, 20 * count):
        rows = round(2 ** (20 * (place / plastic % 1)))
        cols = round(2 ** (18 * (place / plastic**2 % 1)))
        if made % 3 == 1:
            cols = -(-cols // 8) * 8
        if made % 3 == 2:
            cols = _nearest_limit(cols) + (0, -1, 1)[made // 3 % 3] * (1 if made % 2 else 4)
        if 1 <= rows * cols <= 1 << 29 and (rows * cols >= LEAST_ELEMENTS or made % 5 == 0) and cols <= 1 << 18:
            made += 1
            yield rows, cols
            if made == count:
                return


def _nearest_limit(cols: int) -> int:
    return min(LIMITS, key=lambda limit: abs(log2(limit / cols)))
