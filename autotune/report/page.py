"""The report as one HTML file: text, data, charts and the library that draws them, so that it opens anywhere and asks no network.

The page's content security policy forbids every request, and all text from the database reaches it as data, never as markup.
"""

import html
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib.resources import files
from typing import Any

from autotune import __version__
from autotune.choice import WHICH_IS_BEST
from autotune.report.charts import MOST_LABELLED, specifications
from autotune.report.data import embeddable
from autotune.report.library import bundle
from autotune.report.style import colour, versions_in

Row = dict[str, Any]


def page(series: list[Row], name: str, content: str = "") -> str:
    """The page for `series`; `name` is the database's file name and `content` the hash of what it holds, if that is known."""
    operations = sorted({row["operation"] for row in series}) or ["nothing"]
    devices = sorted({row["device"] for row in series}) or ["no device"]
    versions = versions_in(row["version"] for one in series for row in one["shares"])
    drawn: Row = {"series": series, "charts": specifications(versions), "colours": {version: colour(version) for version in versions}}
    drawn["most_labelled"] = MOST_LABELLED
    made = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    return _filled(
        _asset("page.html"),
        {
            "title": html.escape(f"{', '.join(operations)}: tuned kernels"),
            "lead": html.escape(f"What {name} says about {', '.join(devices)}."),
            "footer": html.escape(f"Made {made} by autotune {__version__} from {name}{f', content {content[:12]}' if content else ''}."),
            "rule": html.escape(WHICH_IS_BEST),
            "style": _asset("page.css"),
            "report": embeddable(drawn),
            "library": bundle(),
            "script": _asset("page.js"),
        },
    )


def _filled(template: str, values: Mapping[str, str]) -> str:
    return re.sub(r"\{\{(\w+)\}\}", lambda match: values[match[1]], template)


def _asset(name: str) -> str:
    return files("autotune.report").joinpath(name).read_text(encoding="utf-8")
