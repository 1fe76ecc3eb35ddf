"""Write results/README.md from the databases beside it: `python benchmarks/results_readme.py` (CI checks that it is up to date)."""

import json
import sys
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise, product
from pathlib import Path
from statistics import geometric_mean, median
from textwrap import fill
from typing import Any, NamedTuple

import click

sys.path.insert(1, str(Path(__file__).resolve().parents[1]))

from autotune.choice import WHICH_IS_BEST
from autotune.cli.output import parameters, percent
from autotune.database import Database, shipped_databases
from autotune.database.connection import Row
from benchmarks import dispatch_report
from benchmarks.softmax_report import judged
from benchmarks.starting import started

# What a device's memory can move at most, by its vendor's data sheet, in GB/s.
PEAK_GB_PER_S = {"NVIDIA H200": 4800}

# The share of an A100's peak that the article gives for its versions at 4096x4096 float32.
ARTICLE = {"v0": 0.05, "v1": 0.35, "v2": 0.52, "v3": 0.65, "v4": 0.75}

MOST_LISTED = 200

MOST_LINES = 120  # of a table that is still read
LARGE_BYTES = 8 << 20
BANDS = (0, 32, 256, 2048, 16384, 65536, 1 << 20)  # of columns

HEAD = """\
# Measured results

Each `*.sqlite` here is a read-only export of a tuning database: trials with their samples, clocks, driver, compiler and protocol, the
best configuration of each problem, selectors for all other sizes, and the compiled kernels of those. Read one with `autotune inspect …
--db FILE`, `sqlite3` or Datasette. On a machine with the same GPU the dispatcher uses them before anyone has tuned; without a GPU
`autotune sweep` replays them.

This page is written by `python benchmarks/results_readme.py`. Times are device times per launch by the cold protocol, in microseconds;
"of copy" is the time of a device-to-device copy of the same bytes by the same protocol over the kernel's time, "+-" half the 95 %
confidence interval of the median over it.

{rule}
"""


def page(databases: list[Path]) -> str:
    """The whole of results/README.md."""
    folder = databases[0].parent
    return (
        HEAD.format(rule=fill(WHICH_IS_BEST, 138))
        + "".join(_database(path) for path in databases)
        + _tuning_cost(folder)
        + _agreement(folder)
        + dispatch_report.section(folder)
        + _others(folder)
    )


def _database(path: Path) -> str:
    with Database(path, mode="read") as database:
        devices = [row["device"] for row in database.devices() if row["problems"]]
        return "".join(_device(database, path, device) for device in devices)


def _device(database: Database, path: Path, device: str) -> str:
    best = database.best(device=device)
    runs = database.select(
        "SELECT e.driver, e.cuda, e.compiler, e.pycuda, e.package, date(min(u.started)) AS first, date(max(u.started)) AS last, "
        "q.name AS protocol, q.rule, q.description FROM runs u JOIN environments e ON e.id = u.environment "
        "JOIN protocols q ON q.id = u.protocol JOIN devices d ON d.id = u.device WHERE d.name = ? GROUP BY e.id, q.id",
        (device,),
    )
    how = "\n".join(_environment(row) for row in runs)
    tried = sum(row["trials"] for row in best)
    (kept,) = database.select(
        "SELECT count(*) AS trials FROM trials t JOIN runs u ON u.id = t.run JOIN devices d ON d.id = u.device WHERE d.name = ?", (device,)
    )
    return (
        f"\n## {device}: `{path.name}`\n\n{len(best):,} problems. {tried:,} configurations were tried on them, and the file holds "
        f"{kept['trials']:,} of those trials.\n{how}\n\n"
        "Made, and made again whole, by `python benchmarks/record_device.py --work FOLDER --out FILE`, which goes on from `--work`.\n"
        + _note(database)
        + _article(database, best, device)
        + _sizes(best, _rivals(path.parent, device))
    )


def _note(database: Database) -> str:
    """What the database's manifest says of what was left out."""
    (row,) = database.select("SELECT manifest FROM manifest")
    note = json.loads(row["manifest"]).get("note")
    return f"\n{note}\n" if note else ""


def _environment(row: Row) -> str:
    dates = row["first"] if row["first"] == row["last"] else f"{row['first']} to {row['last']}"
    return (
        f"Measured {dates} with driver {row['driver']}, CUDA {row['cuda']}, {row['compiler']}, PyCUDA {row['pycuda']}, "
        f"autotune {row['package']}; protocol {row['protocol']}, rule {row['rule']}: {row['description']}."
    )


def _article(database: Database, best: list[Row], device: str) -> str:
    size: dict[str, Any] = {"rows": 4096, "cols": 4096, "dtype": "float32", "device": device}
    winner = next((row for row in best if (row["rows"], row["cols"], row["dtype"]) == (4096, 4096, "float32")), None)
    if winner is None:
        return ""
    peak = PEAK_GB_PER_S.get(device)
    per_version = {row["version"]: row for row in database.best_per_version("softmax", **size)}
    lines = [
        "\n### Softmax at 4096x4096 float32, the article's case\n\n"
        f"The best configuration of each version{f'; the peak is {peak / 1000:g} TB/s' if peak else ''}.\n",
        "| version | best configuration | time us | of copy | of peak | the article, of an A100's peak |",
        "| --- | --- | ---: | ---: | ---: | ---: |",
    ]
    for name in sorted(per_version, key=lambda v: int(v[1:])):
        row = per_version[name]
        claimed = f"{100 * ARTICLE[name]:.0f} %" if name in ARTICLE else ""
        lines.append(
            f"| {name} | {parameters(row['parameters'])} | {row['time_us']:.2f} | {percent(winner['copy_us'] / row['time_us'])} "
            f"| {percent(row['gb_per_s'] / peak) if peak else ''} | {claimed} |"
        )
    return "\n".join([*lines, "", _order({v: row["time_us"] for v, row in per_version.items() if v in ARTICLE}), ""])


def _order(times_us: dict[str, float]) -> str:
    """Whether each version is faster than the one before it, as the article has it."""
    names = sorted(times_us, key=lambda v: int(v[1:]))
    steps = []
    for before, after in pairwise(names):
        gain = times_us[before] / times_us[after] - 1
        steps.append(f"{after} is {_compared(gain)} {before}")
    holds = all(times_us[b] / times_us[a] - 1 >= 0.005 for b, a in pairwise(names))
    return f"The article's order of versions {'holds' if holds else 'does not hold in full'} on this GPU: {', '.join(steps)}."


def _compared(gain: float) -> str:
    if abs(gain) < 0.005:
        return "as fast as"
    if gain > 1:
        return f"{1 + gain:.1f} times as fast as"
    return f"{percent(gain)} faster than" if gain > 0 else f"{percent(-gain)} slower than"


class Rival(NamedTuple):
    """The fastest rival at a size, our time over its in the same run, and the page of that run."""

    name: str
    ratio: float
    page: str


Rivals = dict[tuple[int, int, str], Rival]


def _rivals(folder: Path, device: str) -> Rivals:
    """The fastest rival at each size, (rows, columns, element type), that rivals were measured at on `device`."""
    found: Rivals = {}
    for path in sorted(folder.glob("softmax-peers-*.json")):
        measured = json.loads(path.read_text(encoding="utf-8"))
        if all(run["gpu"] == device for run in measured["runs"]):
            cells = [(cell, judged(cell)) for cell in measured["cells"] if not cell["drawn"]]
            for cell, said in cells:
                if said:
                    found[cell["rows"], cell["cols"], cell["dtype"]] = Rival(said["rival"], said["ratio"], path.with_suffix(".md").name)
    return found


def _sizes(best: list[Row], rivals: Rivals) -> str:
    """A line for every problem, or where those are too many, for the sizes that rivals were measured at, and all of them summed up."""
    whole, known = len(best) <= MOST_LINES, {(rows, cols) for rows, cols, _ in rivals}
    shown = [row for row in best if whole or (row["rows"], row["cols"]) in known]
    found = [(row, rivals.get((row["rows"], row["cols"], row["dtype"]))) for row in shown]
    lines = [
        f"\n### {'Every tuned problem' if whole else 'At the sizes of the rivals'}\n",
        *_beside([rival for _, rival in found if rival]),
        "| problem | best configuration | time us | +- | of copy | fastest rival | ours / rival, in one run |",
        "| --- | --- | ---: | ---: | ---: | --- | ---: |",
        *(_line(row, rival) for row, rival in found),
        "",
    ]
    return ("\n".join(lines) if shown else "") + ("" if whole else _summary(best))


def _beside(rivals: list[Rival]) -> Iterator[str]:
    """What the ratios to rivals amount to; nothing where there are none."""
    if rivals:
        ratios = [rival.ratio for rival in rivals]
        yield (
            f"Ours beside the fastest rival is from [one run of both]({rivals[0].page}), whose launches are timed one by one and take some "
            f"tenths of a microsecond more than the times here. Geometric mean of its {len(ratios)} ratios: {geometric_mean(ratios):.3f}; "
            f"above 1.01 at {sum(ratio > 1.01 for ratio in ratios)}.\n"
        )


def _line(row: Row, rival: Rival | None) -> str:
    half = (row["ci_high_us"] - row["ci_low_us"]) / 2 / row["time_us"]
    share = percent(row["fraction_of_copy"]) if row["fraction_of_copy"] else ""
    beside = f"{rival.name} | {rival.ratio:.3f}" if rival else " | "
    return (
        f"| {row['rows']}x{row['cols']} {row['dtype']} | {row['version']} {parameters(row['parameters'])} | {row['time_us']:.2f} "
        f"| {percent(half)} | {share} | {beside} |"
    )


def _summary(best: list[Row]) -> str:
    """All problems, by columns and element type."""
    lines = [
        "\n### All tuned problems, summed up\n",
        f"Each line is of all problems with so many columns. What moves less than {LARGE_BYTES >> 20} MiB is bound by latency rather than "
        "by memory, and stands apart. `autotune inspect best --db FILE` lists every problem.\n",
        "| columns | dtype | problems | best version | of copy, median | least | below 8 MiB, median |",
        "| ---: | --- | ---: | --- | ---: | ---: | ---: |",
    ]
    for (low, high), dtype in product(pairwise(BANDS), sorted({row["dtype"] for row in best})):
        if rows := [row for row in best if low < row["cols"] <= high and row["dtype"] == dtype and row["fraction_of_copy"]]:
            lines.append(f"| {low + 1} to {high} | {dtype} | {len(rows)} | {_winners(rows)} | {_shares(rows)} |")
    return "\n".join([*lines, ""])


def _winners(rows: list[Row]) -> str:
    return ", ".join(f"{version} {count}" for version, count in Counter(row["version"] for row in rows).most_common())


def _shares(rows: list[Row]) -> str:
    large = [row for row in rows if row["gb_per_s"] * row["time_us"] * 1e3 >= LARGE_BYTES]
    small = [row["fraction_of_copy"] for row in rows if row not in large]
    least = min(large, key=lambda row: row["fraction_of_copy"], default=None)
    return " | ".join(
        (
            percent(median(row["fraction_of_copy"] for row in large)) if large else "",
            f"{percent(least['fraction_of_copy'])} at {least['rows']}x{least['cols']}" if least else "",
            percent(median(small)) if small else "",
        )
    )


def _tuning_cost(folder: Path) -> str:
    found = json.loads((folder / "tuning_cost.json").read_text(encoding="utf-8"))
    lines = [
        "\n## What tuning costs\n",
        f"The same 48 configurations of v3, float32, results verified, start-up aside; Kernel Tuner {found['versions']['kernel_tuner']}. "
        "The first size includes compiling. Winners were timed again against each other. `python benchmarks/tuning_cost.py`; "
        "Kernel Tuner's two backends were measured in two runs of one day.\n",
        "| tuner | run | size | seconds | per configuration | its winner, us |",
        "| --- | ---: | --- | ---: | ---: | ---: |",
    ]
    for number, run in enumerate(found["runs"], 1):
        for tuner, rows in run["measured"].items():
            for size, row in zip(run["sizes"], rows, strict=True):
                time_us = next(entry["time_us"] for entry in run["raced"][size] if entry["winner"] == row["winner"])
                lines.append(f"| {tuner} | {number} | {size} | {row['seconds']:.2f} | {row['seconds'] / 48:.3f} s | {time_us:.2f} |")
    return "\n".join([*lines, ""])


def _others(folder: Path) -> str:
    """The other pages of measurements, by their headings, or a bare table by its name."""
    pages = [path for path in sorted(folder.glob("*.md")) if path.name != "README.md"]
    first = {path.name: path.read_text(encoding="utf-8").split("\n", 1)[0] for path in pages}
    said = {name: line.removeprefix("# ") if line.startswith("# ") else name for name, line in first.items()}
    return "\n## Other pages\n\n" + "".join(f"- [{title}]({name})\n" for name, title in said.items())


def _agreement(folder: Path) -> str:
    rows = json.loads((folder / "choice_agreement.json").read_text(encoding="utf-8"))["sizes"]
    near = sum(row["apart"] <= 0.01 for row in rows)
    return (
        f"\n## Whether two sweeps agree\n\nTwo sweeps with different seeds at {len(rows)} sizes drawn at random chose the same "
        f"configuration at {sum(row['same'] for row in rows)}, and configurations whose times are within 1 % of each other at {near} "
        f"(worst {percent(max(row['apart'] for row in rows))}). `python benchmarks/choice_agreement.py`.\n"
    )


@click.command()
@click.option("--check", is_flag=True, help="Only say whether the page is up to date; exit status 1 when it is not.")
def main(check: bool) -> None:
    """Write results/README.md."""
    databases = shipped_databases()
    target = databases[0].parent / "README.md"
    text = page(databases)
    if check and target.read_text(encoding="utf-8") != text:
        raise SystemExit(f"{target} is not what the databases say; run python benchmarks/results_readme.py")
    if not check:
        target.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    started(main)
