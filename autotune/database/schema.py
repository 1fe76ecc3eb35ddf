"""The tables of the first schema: what a database holds, in the words of the design, readable with `sqlite3` or Datasette.

Never edit them: a change is a step in `autotune.database.migrations`.

Integer ids are local to one file. Each row's portable identity is its UNIQUE key: `autotune.database.transfer` merges by those.
Trials, rounds, endings and copies are only ever added; `best` can be rebuilt from them.
"""

APPLICATION_ID = 0x4154554E  # "ATUN": PRAGMA application_id of our files, so that `file` and we can tell them from others
SCHEMA = 4  # the number of steps in `autotune.database.migrations`; a file that says more comes from a newer autotune

_NOW = "TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now'))"

HARDWARE = f"""
CREATE TABLE devices (
    id INTEGER PRIMARY KEY,
    name TEXT NOT NULL,
    compute_capability TEXT NOT NULL,
    arch TEXT NOT NULL,
    sm_count INTEGER NOT NULL,
    l2_bytes INTEGER NOT NULL,
    bus_bits INTEGER NOT NULL,
    shared_bytes_per_block INTEGER NOT NULL,
    shared_bytes_per_sm INTEGER NOT NULL,
    registers_per_sm INTEGER NOT NULL,
    threads_per_sm INTEGER NOT NULL,
    threads_per_block INTEGER NOT NULL,
    UNIQUE (name, compute_capability, sm_count, l2_bytes, bus_bits, shared_bytes_per_block, shared_bytes_per_sm, registers_per_sm,
            threads_per_sm, threads_per_block)
) STRICT;

CREATE TABLE environments (
    id INTEGER PRIMARY KEY,
    package TEXT NOT NULL,
    python TEXT NOT NULL,
    os TEXT NOT NULL,
    driver TEXT NOT NULL,
    cuda TEXT NOT NULL,
    compiler TEXT NOT NULL,
    pycuda TEXT NOT NULL,
    UNIQUE (package, python, os, driver, cuda, compiler, pycuda)
) STRICT;

CREATE TABLE protocols (
    id INTEGER PRIMARY KEY,
    name TEXT NOT NULL,
    rule INTEGER NOT NULL,
    description TEXT NOT NULL,
    UNIQUE (name, rule)
) STRICT;

CREATE TABLE runs (
    id INTEGER PRIMARY KEY,
    uuid TEXT NOT NULL UNIQUE,
    device INTEGER NOT NULL REFERENCES devices,
    environment INTEGER NOT NULL REFERENCES environments,
    protocol INTEGER NOT NULL REFERENCES protocols,
    command TEXT NOT NULL,
    seed INTEGER NOT NULL,
    state TEXT NOT NULL DEFAULT 'running' CHECK (state IN ('running', 'done', 'interrupted', 'failed')),
    origin TEXT NOT NULL DEFAULT 'local' CHECK (origin IN ('local', 'imported', 'shipped')),
    started {_NOW},
    ended TEXT
) STRICT;
"""

KERNELS = """
CREATE TABLE templates (
    id INTEGER PRIMARY KEY,
    operation TEXT NOT NULL,
    version TEXT NOT NULL,
    sha TEXT NOT NULL,
    text TEXT NOT NULL,
    UNIQUE (operation, version, sha)
) STRICT;

CREATE TABLE configurations (
    id INTEGER PRIMARY KEY,
    operation TEXT NOT NULL,
    version TEXT NOT NULL,
    parameters TEXT NOT NULL CHECK (json_valid(parameters)),
    UNIQUE (operation, version, parameters)
) STRICT;

CREATE TABLE binaries (
    sha TEXT PRIMARY KEY,
    kind TEXT NOT NULL CHECK (kind IN ('cubin', 'ptx')),
    arch TEXT NOT NULL,
    bytes INTEGER NOT NULL,
    zlib BLOB NOT NULL
) STRICT;

CREATE TABLE instances (
    id INTEGER PRIMARY KEY,
    configuration INTEGER NOT NULL REFERENCES configurations,
    dtype TEXT NOT NULL,
    arch TEXT NOT NULL,
    template INTEGER NOT NULL REFERENCES templates,
    flags TEXT NOT NULL,
    compiler TEXT NOT NULL,
    symbol TEXT NOT NULL,
    registers INTEGER,
    spill_bytes INTEGER,
    local_bytes INTEGER,
    static_shared_bytes INTEGER,
    binary_sha TEXT REFERENCES binaries,
    UNIQUE (configuration, dtype, arch, template, flags, compiler)
) STRICT;
CREATE INDEX instances_with_a_binary ON instances (binary_sha) WHERE binary_sha IS NOT NULL;
"""

MEASUREMENTS = f"""
CREATE TABLE problems (
    id INTEGER PRIMARY KEY,
    operation TEXT NOT NULL,
    rows INTEGER NOT NULL,
    cols INTEGER NOT NULL,
    dtype TEXT NOT NULL,
    input_stride INTEGER NOT NULL,
    output_stride INTEGER NOT NULL,
    input_alignment INTEGER NOT NULL,
    output_alignment INTEGER NOT NULL,
    in_place INTEGER NOT NULL CHECK (in_place IN (0, 1)),
    bytes_moved INTEGER,
    UNIQUE (operation, rows, cols, dtype, input_stride, output_stride, input_alignment, output_alignment, in_place)
) STRICT;

CREATE TABLE trials (
    id INTEGER PRIMARY KEY,
    run INTEGER NOT NULL REFERENCES runs,
    number INTEGER NOT NULL,
    problem INTEGER NOT NULL REFERENCES problems,
    configuration INTEGER NOT NULL REFERENCES configurations,
    template INTEGER NOT NULL REFERENCES templates,
    instance INTEGER REFERENCES instances,
    outcome TEXT NOT NULL CHECK (outcome IN ('ok', 'wrong_result', 'compile_error', 'launch_error', 'out_of_memory', 'timeout',
                                             'crashed', 'pruned', 'not_applicable')),
    max_error REAL,
    first_us REAL,
    message TEXT NOT NULL,
    replayed INTEGER NOT NULL CHECK (replayed IN (0, 1)),
    created {_NOW},
    UNIQUE (run, number)
) STRICT;
CREATE INDEX trials_by_problem ON trials (problem, configuration);
CREATE INDEX trials_that_failed ON trials (outcome) WHERE outcome NOT IN ('ok', 'pruned');

CREATE TABLE endings (
    trial INTEGER PRIMARY KEY REFERENCES trials,
    outcome TEXT NOT NULL CHECK (outcome IN ('wrong_result', 'launch_error', 'out_of_memory', 'timeout', 'crashed', 'pruned')),
    message TEXT NOT NULL,
    created {_NOW}
) STRICT;

CREATE TABLE rounds (
    id INTEGER PRIMARY KEY,
    trial INTEGER NOT NULL REFERENCES trials,
    number INTEGER NOT NULL,
    kind TEXT NOT NULL CHECK (kind IN ('screen', 'race', 'final')),
    median_us REAL NOT NULL,
    samples_us TEXT NOT NULL CHECK (json_valid(samples_us)),
    launches_per_sample INTEGER NOT NULL,
    sm_clock_mhz INTEGER,
    throttled TEXT,
    taken_at {_NOW},
    UNIQUE (trial, number)
) STRICT;

CREATE TABLE copies (
    id INTEGER PRIMARY KEY,
    run INTEGER NOT NULL REFERENCES runs,
    number INTEGER NOT NULL,
    problem INTEGER NOT NULL REFERENCES problems,
    copy_us REAL NOT NULL,
    taken_at {_NOW},
    UNIQUE (run, number)
) STRICT;
CREATE INDEX copies_by_problem ON copies (problem);
"""

DECISIONS = f"""
CREATE TABLE best (
    id INTEGER PRIMARY KEY,
    device INTEGER NOT NULL REFERENCES devices,
    problem INTEGER NOT NULL REFERENCES problems,
    protocol INTEGER NOT NULL REFERENCES protocols,
    configuration INTEGER NOT NULL REFERENCES configurations,
    template INTEGER NOT NULL REFERENCES templates,
    trial INTEGER NOT NULL REFERENCES trials,
    time_us REAL NOT NULL,
    ci_low_us REAL NOT NULL,
    ci_high_us REAL NOT NULL,
    spread REAL NOT NULL,
    runner_up INTEGER REFERENCES configurations,
    runner_up_us REAL,
    gap REAL,
    beyond_noise INTEGER NOT NULL CHECK (beyond_noise IN (0, 1)),
    copy_us REAL,
    tried INTEGER NOT NULL,
    space_sha TEXT NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('provisional', 'confirmed', 'stale', 'blocked')),
    origin TEXT NOT NULL DEFAULT 'local' CHECK (origin IN ('local', 'imported', 'shipped')),
    updated {_NOW},
    UNIQUE (problem, device, protocol)
) STRICT;
CREATE INDEX best_by_trial ON best (trial);

CREATE TABLE selectors (
    id INTEGER PRIMARY KEY,
    device INTEGER NOT NULL REFERENCES devices,
    operation TEXT NOT NULL,
    dtype TEXT NOT NULL,
    kind TEXT NOT NULL,
    body TEXT NOT NULL CHECK (json_valid(body)),
    train_sha TEXT NOT NULL,
    regret_geomean REAL,
    regret_p95 REAL,
    regret_worst REAL,
    created {_NOW},
    UNIQUE (device, operation, dtype, kind, train_sha)
) STRICT;

CREATE TABLE misses (
    id INTEGER PRIMARY KEY,
    device INTEGER NOT NULL REFERENCES devices,
    problem INTEGER NOT NULL REFERENCES problems,
    tier TEXT NOT NULL,
    configuration INTEGER REFERENCES configurations,
    count INTEGER NOT NULL,
    last {_NOW},
    UNIQUE (device, problem)
) STRICT;

CREATE TABLE pins (
    id INTEGER PRIMARY KEY,
    device INTEGER NOT NULL REFERENCES devices,
    operation TEXT NOT NULL,
    dtype TEXT NOT NULL,
    least_rows INTEGER NOT NULL,
    most_rows INTEGER NOT NULL,
    least_cols INTEGER NOT NULL,
    most_cols INTEGER NOT NULL,
    configuration INTEGER NOT NULL REFERENCES configurations,
    author TEXT NOT NULL,
    why TEXT NOT NULL,
    created {_NOW},
    UNIQUE (device, operation, dtype, least_rows, most_rows, least_cols, most_cols)
) STRICT;

CREATE TABLE blocked (
    id INTEGER PRIMARY KEY,
    device INTEGER NOT NULL REFERENCES devices,
    configuration INTEGER NOT NULL REFERENCES configurations,
    dtype TEXT NOT NULL,
    template INTEGER NOT NULL REFERENCES templates,
    problem INTEGER REFERENCES problems,
    reason TEXT NOT NULL,
    created {_NOW}
) STRICT;
CREATE UNIQUE INDEX blocked_once ON blocked (device, configuration, dtype, template, ifnull(problem, 0));
"""


def only_added(table: str) -> str:
    """The trigger that keeps what was measured as it was measured: rows may be pruned away, never edited."""
    return f"CREATE TRIGGER {table}_are_only_added BEFORE UPDATE ON {table} BEGIN SELECT RAISE(ABORT, '{table} are never changed'); END"


APPEND_ONLY = "".join(f"{only_added(table)};\n" for table in ("trials", "rounds", "endings", "copies", "binaries"))
TABLES = HARDWARE + KERNELS + MEASUREMENTS + DECISIONS + APPEND_ONLY
