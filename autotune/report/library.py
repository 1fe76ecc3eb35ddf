"""The library that draws: Vega, Vega-Lite and vega-embed for the page, and their renderer for pictures, all from vl-convert.

It is an extra, `[report]`, because it is large and only reports need it.
"""

import os
from contextlib import suppress
from functools import lru_cache
from types import ModuleType

from autotune.cubins import default_folder
from autotune.errors import UsageError, installing
from autotune.report.charts import VEGA_LITE


def vl_convert() -> ModuleType:
    """The module vl_convert. Raises UsageError where it is not installed."""
    try:
        import vl_convert
    except ImportError as error:
        raise UsageError(f"a report needs vl-convert; install it with: {installing('report')}") from error
    return vl_convert


@lru_cache(maxsize=1)
def bundle() -> str:
    """The text of a JavaScript module that sets window.vegaEmbed. Bundling takes seconds, so the result is kept in the cache folder."""
    library = vl_convert()
    kept = default_folder() / f"vega-{library.__version__}-{VEGA_LITE}.js"
    with suppress(OSError):
        return kept.read_text(encoding="utf-8")
    text = str(library.javascript_bundle("window.vegaEmbed = vegaEmbed;", vl_version=VEGA_LITE)).replace("</script", "<\\/script")
    with suppress(OSError):  # a cache that cannot be written costs time and nothing else
        kept.parent.mkdir(parents=True, exist_ok=True)
        partial = kept.with_name(f".{kept.name}.{os.getpid()}.partial")
        partial.write_text(text, encoding="utf-8")
        partial.replace(kept)
    return text
