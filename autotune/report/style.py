"""How charts look: colours, type and legends, the same in the page and in the picture."""

from collections.abc import Iterable
from typing import Any

Spec = dict[str, Any]

# Told apart by colour-blind readers together with the labels, and light enough for a dark page, dark enough for paper. By version number.
PALETTE = (
    *("#7c828c", "#c4524f", "#c9781c", "#2f7ebc", "#1f8f82", "#8a62b8", "#9c8420", "#56913b", "#c25f97", "#855c47", "#5589f1", "#c03fd0"),
    *("#fc1818", "#4854fc"),
)
OUTCOMES = {
    "wrong_result": "#c4524f",
    "compile_error": "#c9781c",
    "launch_error": "#2f7ebc",
    "out_of_memory": "#8a62b8",
    "timeout": "#9c8420",
    "crashed": "#c25f97",
    "not_applicable": "#7c828c",
}
FONT = 'system-ui, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif'
CONFIG: Spec = {
    "background": None,
    "font": FONT,
    "view": {"stroke": None},
    "axis": {"labelFontSize": 12, "titleFontSize": 12, "titleFontWeight": 500, "gridColor": "#dfe3e8", "labelColor": "#454c56"}
    | {"titleColor": "#454c56", "domainColor": "#9aa3ad", "tickColor": "#9aa3ad", "titlePadding": 8},
    "axisLeft": {"minExtent": 34},  # so that charts below each other begin at one line
    "legend": {"orient": "top", "title": None, "labelFontSize": 12, "symbolType": "circle", "symbolStrokeWidth": 0}
    | {"symbolOpacity": 1}
    | {"labelColor": "#454c56"},
    "title": {"fontSize": 16, "anchor": "start", "subtitleFontSize": 12, "subtitleColor": "#454c56", "offset": 14, "subtitlePadding": 4},
}


def versions_in(names: Iterable[str]) -> list[str]:
    """The versions, each once, in the order of their numbers."""
    return sorted(set(names), key=lambda name: (len(name), name))


def colour(version: str) -> str:
    """The colour of a version, the same in every chart of every report."""
    digits = version[1:]
    return PALETTE[(int(digits) if digits.isdigit() else sum(map(ord, version))) % len(PALETTE)]
