"""The sizes that selection is trained on and judged by: a grid with misaligned rows, and sizes that are never tuned.

Every matrix has at most 512 MB in float32. The lists are fixed: the same sizes on every device and in every year.
"""

import random

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
