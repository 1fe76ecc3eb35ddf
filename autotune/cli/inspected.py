"""The columns of `autotune inspect`, each with what it means: the tables are drawn and the help is written from them."""

from collections.abc import Sequence

from autotune.cli.output import SIZE, Column, in_bytes, microseconds, on_device, parameters, percent

DEVICE = Column(
    ("device", "replayed"),
    "device",
    on_device,
    right=False,
    shared=True,
    meaning='what the times belong to, with "(replayed)" where they are another database\'s measurements',
)
ABOUT_DEVICE = Column("device", "device", right=False, shared=True)  # of what is no measurement
DTYPE = Column("dtype", "dtype", right=False, shared=True)
OPERATION = Column("operation", "operation", right=False, shared=True)
VERSION = Column("version", "version", right=False)
CONFIGURATION = Column("parameters", "configuration", parameters, right=False, long=True, phrases=True, named=False)
TIME = Column("time_us", "time us", microseconds, meaning="the median time of a launch")
SPEED = Column("gb_per_s", "GB/s", lambda value: f"{value:,.1f}", rank=5, meaning="the bytes that must be moved, over that time")

COUNTED_TRIALS = "how many are stored: each try of a configuration, and one more for each sweep in which a known one raced again"

BEST = (
    DEVICE,
    OPERATION,
    SIZE,
    DTYPE,
    VERSION,
    CONFIGURATION,
    TIME,
    SPEED,
    Column(
        ("time_us", "spread", "ci_low_us", "ci_high_us"),
        "spread",
        lambda _, *spread: _spread(*spread),
        rank=3,
        meaning="how far the middle half of the samples reaches, over their median, which fewer than four do not tell",
    ),
    Column("fraction_of_copy", "of copy", percent, meaning="the time of a device copy of the same bytes over the kernel's"),
    Column(
        "trials",
        "tried",
        rank=4,
        meaning="how many configurations had trials when this was settled, less those that autotune prune took away",
    ),
    Column(
        "state",
        "state",
        right=False,
        rank=2,
        meaning="confirmed by a final race of the fastest, provisional before that race, stale where the template or its "
        "definition has changed since, no longer offers the configuration, or offers a faster one again (kernels of your own are known by "
        "--kernels), blocked where the configuration must not be selected",
    ),
)
RUNNER_UP = (
    Column(
        "runner_up",
        "runner-up",
        lambda value: f"{value['version']} {parameters(value['parameters'])}",
        right=False,
        long=True,
        phrases=True,
        meaning="the fastest of the others that were compared with it; a file that is shipped may have left it out",
    ),
    Column("runner_up_us", "its time us", microseconds),
    Column("gap", "gap", percent, meaning="how much longer the runner-up takes, below 0 where it tied and was a little faster"),
    Column(
        ("beyond_noise", "runner_up_us"),
        "beyond noise",
        lambda beyond, _: "yes" if beyond else "no",
        right=False,
        meaning="yes when it is no tie and the 95 % confidence intervals of the two medians do not meet",
    ),
)
TRIALS = (
    DEVICE,
    OPERATION,
    SIZE,
    DTYPE,
    VERSION,
    CONFIGURATION,
    Column("outcome", "outcome", right=False, meaning="how it ended; pruned means right but stopped early, because it was far behind"),
    TIME,
    SPEED,
    Column("max_error", "max error", lambda value: f"{value:.1e}", rank=4, meaning="the largest relative error against the reference"),
    Column("registers", "registers", rank=3, meaning="how many a thread uses"),
    Column(
        "evidence",
        "evidence",
        right=False,
        rank=2,
        meaning="the most careful kind of round that it reached, whose time is shown: screen, a first look; race, against others in turns; "
        "final, the last race of the fastest",
    ),
    Column("message", "message", right=False, long=True),
)
PROBLEMS = (
    OPERATION,
    SIZE,
    DTYPE,
    Column("bytes_moved", "moved", in_bytes, meaning="what the operation must read and write at least"),
    Column("trials", "trials", meaning=COUNTED_TRIALS),
)
DEVICES = (
    Column("device", "device", right=False),
    Column("compute_capability", "compute capability"),
    Column("sm_count", "SMs"),
    Column("l2_bytes", "L2 MiB", lambda value: f"{value >> 20}"),
    Column("problems", "problems with a best"),
    Column(
        "replayed",
        "of them replayed",
        lambda count: count or "",
        meaning="how many of these were settled by replaying another database's measurements",
    ),
    Column("runs", "runs", meaning="the number of sweeps and imports that brought trials"),
)
VERSIONS = (
    OPERATION,
    VERSION,
    Column(
        "template_sha", "template", lambda value: value[:12], right=False, meaning="the beginning of the hash of its source and definition"
    ),
    Column("configurations", "configurations tried", meaning="how many different ones of it have trials"),
    Column("trials", "trials", meaning=COUNTED_TRIALS),
    Column("best_on", "best on problems"),
)
PINNED = Column(("least_rows", "most_rows", "least_cols", "most_cols"), "sizes", lambda *ends: _range(*ends), right=False)
PINS = (
    ABOUT_DEVICE,
    OPERATION,
    DTYPE,
    PINNED,
    VERSION,
    CONFIGURATION,
    Column("author", "by", right=False),
    Column("why", "why", right=False, long=True),
)
BLOCKED = (
    ABOUT_DEVICE,
    OPERATION,
    DTYPE,
    VERSION,
    CONFIGURATION,
    SIZE,
    Column("state", "state", right=False, meaning="blocked, or stale where the kernel or its definition has changed since"),
    Column("reason", "why", right=False, long=True),
)
MISSES = (
    ABOUT_DEVICE,
    OPERATION,
    SIZE,
    DTYPE,
    Column("count", "asked", meaning="how often"),
    Column("tier", "answered by", right=False, meaning="the tier of the dispatcher's decision, which autotune explain tells"),
    VERSION,
    CONFIGURATION,
    Column("last", "last", right=False, rank=1, meaning="when it was asked for last"),
)


def explained(columns: Sequence[Column], before: str = "Of the columns, ") -> str:
    """What the columns mean, as one paragraph of a command's help."""
    said = [f'"{column.heading}" is {column.meaning}' for column in columns if column.meaning]
    return f"{before}{'; '.join(said)}."


def _spread(spread: float | None, low_us: float | None, high_us: float | None) -> str:
    if spread is not None:
        return percent(spread)
    if low_us is None or high_us is None:  # the best of a version, of which none is told
        return ""
    return "few samples" if low_us < high_us else "one sample"


def _range(least_rows: int, most_rows: int, least_cols: int, most_cols: int) -> str:
    """As `autotune pin` takes it."""
    first, last = f"{least_rows}x{least_cols}", f"{most_rows}x{most_cols}"
    return first if first == last else f"{first}..{last}"
