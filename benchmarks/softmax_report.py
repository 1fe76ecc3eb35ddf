"""What `softmax_peers.py` measured, judged: the table, the plot and the verdict. Needs no GPU.

python benchmarks/softmax_report.py RUN.json --table TABLE.md --plot PLOT.png
"""

import json
import math
import statistics
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

sys.path.insert(1, str(Path(__file__).resolve().parents[1]))

from autotune.element import element
from autotune.report.charts import POWER, SCHEMA, VEGA_LITE
from autotune.report.library import vl_convert
from autotune.report.picture import packed
from autotune.report.style import CONFIG
from benchmarks.starting import started

Row = dict[str, Any]

HEAD = """\
# Row softmax beside other libraries

Device times of one launch in microseconds, all of a cell taken in turns in one run with cold caches (`benchmarks/softmax_peers.py`).
Each rival runs in whichever of its ways is fastest at the cell.

- **copy**: a copy of the same bytes from device to device, by `Tensor.copy_` or, where that way was measured too, by an elementwise kernel.
  `copy_` is slow at odd sizes, where a share of it may exceed 100 %.
- **floor**: our kernel's loads, exchange and stores without its arithmetic (`benchmarks/softmax_floor.py`).
- **ours / rival**: below 1 ours is faster. *equal* is slower by at most twice the spread, *behind* by more. **spread** is the interquartile
  range over the median, the larger of both.
- **over**: what ours was meant to take at most and does not: 1.03 times the copy and half a microsecond, or where less than 8 MB are read
  and written, if that is more, 1.1 times the floor.
- **ours is**: version and parameters in declared order, and how the dispatcher came to it: *exact* was tuned at this size, *selector* not.
"""

FLOOR_BYTES = 8_000_000  # read and written: problems that move less are judged by their floor too
OURS = ("copy", "ours", "floor")
COLOURS = {
    "ours": "#c4524f",
    "quack": "#2f7ebc",
    "quack (recorded)": "#2f7ebc",
    "triton": "#1f8f82",
    "torch_compile": "#8a62b8",
    "liger": "#c9781c",
    "cudnn": "#56913b",
    "torch": "#7c828c",
}


def bytes_moved(row: Row) -> int:
    return int(2 * row["rows"] * row["cols"] * element(row["dtype"]).bytes)


def name_of(row: Row) -> str:
    return f"{row['dtype']} {row['rows']}x{row['cols']}" + (" (drawn)" if row["drawn"] else "")


def with_recorded(rows: Sequence[Row], recorded: Sequence[Row]) -> list[Row]:
    """The rows, with QuACK's recorded time where it did not run, scaled by the copies of the same cell in both runs."""
    known = {(cell["dtype"], cell["rows"], cell["cols"]): cell for cell in recorded}
    found = []
    for row in rows:
        old = known.get((row["dtype"], row["rows"], row["cols"]))
        us = dict(row["us"])
        if old and "quack" not in us and {"quack", "copy"} <= old["us"].keys() and "copy" in us:
            us["quack (recorded)"] = old["us"]["quack"] * us["copy"] / old["us"]["copy"]
        found.append({**row, "us": us})
    return found


def judged(row: Row) -> Row | None:
    """A cell against its fastest rival, the copy and the floor; None where ours or every rival failed.

    It is `ahead`, `equal` where the two times are within twice the larger of their spreads, or `behind`. Its `limit` is what it may take:
    3 % and half a microsecond more than the copy, or 10 % more than the floor where a problem moves less than FLOOR_BYTES.
    """
    us, spread = row["us"], row["spread"]
    rivals = {name: time for name, time in us.items() if name not in OURS}
    if "ours" not in us or not rivals:
        return None
    rival = min(rivals, key=lambda name: rivals[name])
    ratio, noise = us["ours"] / rivals[rival], max(spread["ours"], spread.get(rival, 0.0))
    limits = [1.03 * us["copy"] + 0.5] if "copy" in us else []
    if "floor" in us and bytes_moved(row) < FLOOR_BYTES:
        limits.append(1.1 * us["floor"])
    return {
        "rival": rival,
        "ratio": ratio,
        "spread": noise,
        "verdict": "ahead" if ratio <= 1 else "equal" if ratio <= 1 + 2 * noise else "behind",
        "limit": max(limits, default=math.inf),
        "within": us["ours"] <= max(limits, default=math.inf),
    }


def table(rows: Sequence[Row]) -> str:
    """What the columns are, a line per cell, and what they amount to. Times in microseconds."""
    lines = [HEAD, "| cell | copy | floor | ours | fastest rival | ours / rival | spread | of copy | ours / floor | ours is | |"]
    lines.append("| --- | ---: | ---: | ---: | --- | ---: | ---: | ---: | ---: | --- | --- |")
    for row in rows:
        us, said = row["us"], judged(row)
        if said is None:
            lines.append(f"| {name_of(row)} | " + "|" * 8 + f" not measured: {row['failed'].get('ours', 'no rival ran')} |")
            continue
        floor_us, by_floor = (f"{us['floor']:.2f}", f"{us['ours'] / us['floor']:.3f}") if "floor" in us else ("", "")
        notes = [said["verdict"]] * (said["verdict"] != "ahead") + [f"over {said['limit']:.2f}"] * (not said["within"])
        times = f"{us['copy']:.2f} | {floor_us} | {us['ours']:.2f} | {said['rival']} {us[said['rival']]:.2f}"
        ratios = f"{said['ratio']:.3f} | {said['spread']:.1%} | {us['copy'] / us['ours']:.1%} | {by_floor}"
        lines.append(f"| {name_of(row)} | {times} | {ratios} | {short(row['configuration'])}, {row['tier']} | {', '.join(notes)} |")
    return "\n".join([*lines, "", *summary(rows)])


def short(configuration: str) -> str:
    """A configuration as the table says it: `v7 256/4/4/exponentials/exact`."""
    version, _, parameters = configuration.partition(" ")
    return f"{version} " + "/".join(part.split(" ")[-1] for part in parameters.split(", "))


def summary(rows: Sequence[Row]) -> list[str]:
    """The figures that decide, one sentence each."""
    said = []
    for title, drawn in (("tuned", False), ("drawn at random", True)):
        found = [(row, j) for row in rows if row["drawn"] is drawn and (j := judged(row))]
        if not found:
            continue
        mean = statistics.geometric_mean(j["ratio"] for _, j in found)
        counts = {verdict: sum(j["verdict"] == verdict for _, j in found) for verdict in ("ahead", "equal", "behind")}
        over = sum(not j["within"] for _, j in found)
        said.append(
            f"{len(found)} cells {title}: geometric mean of ours / fastest rival {mean:.3f}; "
            + ", ".join(f"{count} {verdict}" for verdict, count in counts.items())
            + f"; {over} over their limit."
        )
    worst = sorted(((j["ratio"], name_of(row)) for row in rows if (j := judged(row)) and j["verdict"] == "behind"), reverse=True)
    if worst:
        said.append("Behind: " + ", ".join(f"{name} {ratio:.3f}" for ratio, name in worst) + ".")
    return said


def plot(rows: Sequence[Row]) -> bytes:
    """Share of copy over the columns of a row, one line per contestant: panels by element type, and by what a problem moves. A PNG."""
    points = [
        {"x": math.log2(row["cols"]), "share": row["us"]["copy"] / us, "who": name, "dtype": row["dtype"], "moves": _moves(row)}
        for row in rows
        for name, us in row["us"].items()
        if name not in ("copy", "floor") and "copy" in row["us"]
    ]
    names = [name for name in COLOURS if any(point["who"] == name for point in points)]
    spec = {
        "$schema": SCHEMA,
        "config": CONFIG | {"background": "white", "padding": 20},
        "data": {"values": points},
        "facet": {
            "column": {
                "field": "dtype",
                "title": None,
                "header": {"labelFontSize": 14},
                "sort": list(dict.fromkeys(p["dtype"] for p in points)),
            },
            "row": {"field": "moves", "title": None, "header": {"labelFontSize": 14}, "sort": [LARGE, SMALL]},
        },
        "spec": {"width": 460, "height": 260, "layer": [_line(names), _points(names)]},
        "title": {
            "text": "Row softmax: share of a device copy of the same bytes, cold",
            "subtitle": "Where sizes share columns, their mean.",
        },
    }
    return packed(vl_convert().vegalite_to_png(spec, vl_version=VEGA_LITE, scale=1.5))


LARGE, SMALL = "8 MB and more", "less than 8 MB"


def _moves(row: Row) -> str:
    return SMALL if bytes_moved(row) < FLOOR_BYTES else LARGE


def _encoding(names: Sequence[str]) -> Mapping[str, Any]:
    colour = {
        "field": "who",
        "legend": {"columns": len(names)},
        "scale": {"domain": names, "range": [COLOURS[name] for name in names]},
        "sort": names,
    }
    axis = {"labelExpr": POWER, "tickMinStep": 1, "tickCount": 10}
    x = {"field": "x", "type": "quantitative", "title": "columns", "axis": axis}
    return {"x": x, "color": {**colour, "type": "nominal"}}


def _line(names: Sequence[str]) -> Row:
    share = {"aggregate": "mean", "field": "share", "type": "quantitative", "title": "share of copy", "axis": {"format": "%"}}
    size = {"condition": {"test": "datum.who === 'ours'", "value": 3}, "value": 1.2}
    return {"mark": {"type": "line", "clip": True}, "encoding": {**_encoding(names), "y": share, "strokeWidth": size}}


def _points(names: Sequence[str]) -> Row:
    y = {"field": "share", "type": "quantitative"}
    return {"mark": {"type": "point", "filled": True, "size": 18, "opacity": 0.6, "clip": True}, "encoding": {**_encoding(names), "y": y}}


@click.command()
@click.argument("run", type=click.Path(exists=True, path_type=Path))
@click.option("--recorded", type=click.Path(exists=True, path_type=Path), help="Times of an earlier run, for QuACK where it did not run.")
@click.option("--table", "table_path", type=click.Path(path_type=Path))
@click.option("--plot", "plot_path", type=click.Path(path_type=Path), help="A PNG; needs vl-convert, see the extra `report`.")
def main(run: Path, recorded: Path | None, table_path: Path | None, plot_path: Path | None) -> None:
    """Print what RUN amounts to, and write its table and plot."""
    measured = json.loads(run.read_text())
    rows = with_recorded(measured["cells"], json.loads(recorded.read_text())["cells"] if recorded else [])
    print("\n".join(summary(rows)))
    if table_path:
        table_path.write_text(table(rows) + "\n" + "\n".join(_about(measured)) + "\n")
    if plot_path:
        plot_path.write_bytes(plot(rows))


def _about(measured: Row) -> list[str]:
    """How it was measured, for under the table."""
    lines = [
        "",
        f"Seed of the drawn sizes: {measured['seed']}. Spread: interquartile range over the median, the larger of ours and the rival's.",
    ]
    lines += [
        f"{run['date']}, {run['gpu']}, driver {run['driver']}: " + ", ".join(f"{k} {v}" for k, v in run["versions"].items()) + "."
        for run in measured["runs"]
    ]
    failed = sorted({f"{name}: {why}" for row in measured["cells"] for name, why in row["failed"].items()})
    return [*lines, *(["", "What could not run somewhere:", "", *(f"- {text}" for text in failed)] if failed else [])]


if __name__ == "__main__":
    started(main)
