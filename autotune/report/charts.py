"""What is drawn, as Vega-Lite specifications over named data sets: the page fills them in a browser, the picture without one.

Sizes are drawn in powers of two: a field called x or y is the binary logarithm of columns or rows.
"""

from autotune.report.style import CONFIG, OUTCOMES, Spec, colour

VEGA_LITE = "6.4"  # the Vega-Lite that the specifications are written for; the library that draws them brings several
SCHEMA = f"https://vega.github.io/schema/vega-lite/v{VEGA_LITE.split('.')[0]}.json"

POWER = (
    "datum.value >= 30 ? pow(2, datum.value - 30) + ' G' : datum.value >= 20 ? pow(2, datum.value - 20) + ' M' : "
    "datum.value >= 10 ? pow(2, datum.value - 10) + ' K' : '' + pow(2, datum.value)"
)
CROWDED: Spec = {"name": "crowded"}  # whether there are more tuned sizes than discs with a label have room for
MOST_LABELLED = 60
# The ticks of logarithmic axes: those of Vega are too many.
RATIOS = [1, 1.01, 1.02, 1.05, 1.1, 1.2, 1.5, 2, 3, 5, 10, 20, 50, 100, 300, 1000]
COUNTS = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 3000, 10000, 30000, 100000]
LOGS = [{"calculate": "log(datum.cols) / LN2", "as": "x"}, {"calculate": "log(datum.rows) / LN2", "as": "y"}]


def specifications(versions: list[str]) -> dict[str, Spec]:
    """Every chart by its name; `versions` are those that have a colour in it."""
    colours = {"field": "version", "type": "nominal", "scale": {"domain": versions, "range": [colour(v) for v in versions]}}
    drawn = {
        "plane": _plane(colours),
        "shares": _shares(colours),
        "effect": _effect(colours | {"legend": None}),
        "convergence": _convergence(colours),
        "failures": _failures(),
    }
    return {name: {"$schema": SCHEMA, "config": CONFIG, **_sized(spec)} for name, spec in drawn.items()}


def _sized(spec: Spec) -> Spec:
    return {"width": "container", "autosize": {"type": "fit", "contains": "padding"}} | spec


def _plane(colours: Spec) -> Spec:
    """Which version wins where: shade for the nearest tuned size, a disc for each tuned one, labelled where there is room."""
    axes = {"x": _power_axis("x", "columns", grid=False), "y": _power_axis("y", "rows", grid=False)}
    cells = {
        "data": {"name": "plane"},
        "mark": {"type": "rect", "opacity": 0.3, "aria": False, "strokeWidth": 0},
        "encoding": {
            "x": axes["x"] | {"field": "cols"},
            "x2": {"field": "cols_to"},
            "y": axes["y"] | {"field": "rows"},
            "y2": {"field": "rows_to"},
            "color": colours,
        },
    }
    chosen = {
        "name": "chosen",
        "data": {"name": "problems"},
        "transform": [*LOGS, {"filter": "datum.chosen"}],
        "mark": {"type": "point", "size": {"expr": "crowded ? 300 : 900"}, "strokeWidth": 2, "color": "#1b1f24", "aria": False},
        "encoding": axes,
    }
    discs = {
        "data": {"name": "problems"},
        "transform": LOGS,
        "mark": {"type": "circle", "size": {"expr": "crowded ? 80 : 430"}, "opacity": 1, "cursor": "pointer"},
        "encoding": axes | {"color": colours, "tooltip": _tooltip("size", "version", "configuration") + _measured("fraction_of_copy")},
    }
    labels = {
        "data": {"name": "problems"},
        "transform": [*LOGS, {"calculate": "crowded || length(datum.version) > 3 ? '' : datum.version", "as": "label"}],
        "mark": {"type": "text", "fontSize": 10.5, "fontWeight": 600, "color": "white"}
        | {"aria": False, "cursor": "pointer", "tooltip": None},
        "encoding": axes | {"text": {"field": "label"}},
    }
    return {"height": 430, "params": [CROWDED | {"value": False}], "layer": [cells, chosen, discs, labels]}


def _shares(colours: Spec) -> Spec:
    """How near each version comes to a copy: a line through the sizes that are `leading`, broken where a doubling is missing."""
    axes = {
        "x": _power_axis("x", "columns"),
        "y": {"field": "share", "type": "quantitative", "title": "share of copy", "axis": {"format": "%"}, "scale": {"domainMin": 0}},
        "color": colours,
    }
    tooltip = {"tooltip": _tooltip("size", "version", "configuration") + _measured("share")}
    leading = [*LOGS, {"filter": "datum.leading"}]
    as_wide_as_the_plane = {
        "data": {"name": "plane"},
        "transform": [{"aggregate": [{"op": "min", "field": "cols", "as": "low"}, {"op": "max", "field": "cols_to", "as": "high"}]}],
        "mark": {"type": "rule", "opacity": 0, "aria": False},
        "encoding": {"x": axes["x"] | {"field": "low"}, "x2": {"field": "high"}},
    }
    return {
        "height": 380,
        "params": [CROWDED | {"value": False}],
        "layer": [
            as_wide_as_the_plane,
            _copy(),
            {
                "data": {"name": "shares"},
                "transform": leading,
                "mark": {"type": "line", "strokeWidth": 2, "aria": False},
                "encoding": axes | {"detail": {"field": "stretch", "type": "nominal"}},
            },
            {
                "data": {"name": "shares"},
                "transform": LOGS,
                "mark": {"type": "circle", "cursor": "pointer"},
                "encoding": axes
                | tooltip
                | {
                    "size": {"condition": {"test": "datum.leading", "value": 80}, "value": {"expr": "crowded ? 14 : 36"}},
                    "opacity": {"condition": {"test": "datum.leading", "value": 1}, "value": 0.6},
                },
            },
        ],
    }


def _copy() -> Spec:
    """The line at which a kernel is as fast as a copy, and what it is."""
    return {
        "data": {"values": [{"share": 1, "said": "dashed: a device copy of the same bytes"}]},
        "layer": [
            {
                "mark": {"type": "rule", "strokeDash": [5, 4], "strokeWidth": 1.5, "color": "#454c56", "aria": False},
                "encoding": {"y": {"field": "share", "type": "quantitative"}},
            },
            {
                "mark": {"type": "text", "align": "right", "baseline": "bottom", "x": "width", "y": -8, "color": "#454c56", "fontSize": 12},
                "encoding": {"text": {"field": "said"}},
            },
        ],
    }


def _effect(colours: Spec) -> Spec:
    """One parameter at one size: a disc for the best with each value, a line up to the median of all configurations that have it."""
    slowdown = {"type": "quantitative", "scale": {"type": "log", "domainMin": 1, "domainMax": {"expr": "highest"}, "nice": False}}
    axis = {"title": "time over the best", "format": "~r", "values": RATIOS}
    across = {
        "x": {"field": "value", "type": "ordinal", "sort": None, "title": None, "axis": {"labelAngle": 0, "labelOverlap": "greedy"}}
    } | {"xOffset": {"field": "version", "type": "nominal"}}
    return {
        "height": 220,
        "params": [{"name": "highest", "value": 2}],
        "data": {"name": "effect"},
        "encoding": across | {"color": colours},
        "layer": [
            {
                "mark": {"type": "rule", "strokeWidth": 3, "opacity": 0.35, "aria": False},
                "encoding": {"y": slowdown | {"field": "best", "axis": axis}, "y2": {"field": "median"}},
            },
            {
                "mark": {"type": "circle", "size": 70, "opacity": 1},
                "encoding": {
                    "y": slowdown | {"field": "best", "axis": axis},
                    "tooltip": [
                        *_tooltip("version", "parameter", "value", "configurations"),
                        {"field": "best", "title": "best over best of all", "format": ".3f"},
                        {"field": "median", "title": "median over best of all", "format": ".3f"},
                    ],
                },
            },
        ],
    }


def _convergence(colours: Spec) -> Spec:
    """How soon the search was near its final best: the chosen size in colour, the others as a backdrop."""
    axes = {
        "x": {"field": "trial", "type": "quantitative", "title": "trials"}
        | {"scale": {"type": "log", "domainMin": 1, "domainMax": {"expr": "most"}, "nice": False}}
        | {"axis": {"format": "~r", "values": COUNTS}},
        "y": {
            "field": "slowdown",
            "type": "quantitative",
            "title": "best so far over the final best",
            "scale": {"type": "log", "domainMin": 1, "domainMax": {"expr": "highest"}, "nice": False},
            "axis": {"format": "~r", "values": RATIOS},
        },
    }
    line = {"type": "line", "interpolate": "step-after", "aria": False}
    return {
        "height": 300,
        "params": [{"name": "most", "value": 2}, {"name": "highest", "value": 2}],
        "layer": [
            {
                "data": {"name": "others"},
                "mark": line | {"strokeWidth": 1, "opacity": 0.35, "color": "#7c828c"},
                "encoding": axes | {"detail": {"field": "size"}},
            },
            {"data": {"name": "convergence"}, "mark": line | {"strokeWidth": 2, "color": "#5b6470"}, "encoding": axes},
            {
                "data": {"name": "convergence"},
                "transform": [{"filter": "datum.version !== null"}],
                "mark": {"type": "circle", "size": 90, "opacity": 1},
                "encoding": axes
                | {
                    "color": colours,
                    "tooltip": [*_tooltip("trial", "version"), {"field": "time_us", "title": "time, us", "format": ".2f"}],
                },
            },
        ],
    }


def _failures() -> Spec:
    reason = {"field": "outcome", "type": "nominal", "scale": {"domain": list(OUTCOMES), "range": list(OUTCOMES.values())}} | {
        "legend": {"labelExpr": "replace(datum.label, regexp('_', 'g'), ' ')"}
    }
    return {
        "height": 200,
        "data": {"name": "failures"},
        "mark": {"type": "bar", "cornerRadius": 2},
        "encoding": {
            "y": {"field": "version", "type": "nominal", "title": None, "sort": None},
            "x": {
                "field": "count",
                "type": "quantitative",
                "title": "failed trials",
                "axis": {"labelExpr": "datum.value % 1 ? '' : datum.label"},
            },
            "color": reason,
            "tooltip": _tooltip("version", "outcome", "count"),
        },
    }


def _power_axis(field: str, title: str, grid: bool = True) -> Spec:
    labels = {"labelExpr": POWER, "labelOverlap": "parity", "labelSeparation": 12, "labelFlush": False}
    axis = labels | {"values": list(range(41)), "grid": grid}
    return {"field": field, "type": "quantitative", "title": title, "scale": {"zero": False, "nice": False}, "axis": axis}


def _tooltip(*fields: str) -> list[Spec]:
    return [{"field": field} for field in fields]


def _measured(share: str) -> list[Spec]:
    return [{"field": "time_us", "title": "time, us", "format": ".2f"}, {"field": share, "title": "share of copy", "format": ".1%"}]
