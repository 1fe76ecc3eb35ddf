"""The report's first two charts as one picture, drawn without a browser: for a README or a slide."""

from typing import Any

from autotune.report.charts import CONFIG, CROWDED, MOST_LABELLED, SCHEMA, VEGA_LITE, specifications, versions_in
from autotune.report.library import vl_convert

Row = dict[str, Any]

WIDTH_PX = 760
CHARTS = {
    "plane": ("Which version wins where", "Discs: tuned sizes. Shade: the version of the nearest tuned size. K is 1024."),
    "shares": (
        "How near each version comes to a copy",
        "Best configuration of each version, by time of a device copy of the same bytes over its time.",
    ),
}


def picture(series: Row) -> bytes:
    """The PNG of one series, on white, at twice the size in pixels of `WIDTH_PX`."""
    charts = specifications(versions_in(row["version"] for row in series["shares"]))
    shares = [row for row in series["shares"] if row["share"] is not None]
    names = list(CHARTS) if shares else ["plane"]
    drawn = [
        {key: value for key, value in charts[name].items() if key not in ("$schema", "config", "autosize", "params")}
        | {"width": WIDTH_PX, "title": {"text": CHARTS[name][0], "subtitle": CHARTS[name][1]}}
        for name in names
    ]
    spec = {
        "$schema": SCHEMA,
        "config": CONFIG | {"background": "white", "padding": 20},
        "params": [CROWDED | {"value": len(series["problems"]) > MOST_LABELLED}],
        "datasets": {"plane": series["plane"], "problems": [p for p in series["problems"] if p["version"]], "shares": shares},
        "title": {
            "text": f"{series['operation']} {series['dtype']} on {series['device']}",
            "subtitle": f"protocol {series['protocol']}, rule {series['protocol_rule']}",
        },
        "spacing": 30,
        "resolve": {"legend": {"color": "independent"}},
        "vconcat": drawn,
    }
    return bytes(vl_convert().vegalite_to_png(spec, vl_version=VEGA_LITE, scale=2))
