"""Numbers that JSON has words for: it knows neither infinity nor NaN, and what reads it stops at either."""

from math import isfinite
from typing import Any


def finite(value: Any) -> Any:
    """`value` with None in the place of every number that is not finite, in lists and objects too.

    >>> finite({"us": [1.5, float("inf")], "why": "nan"})
    {'us': [1.5, None], 'why': 'nan'}
    """
    if isinstance(value, float):
        return value if isfinite(value) else None
    if isinstance(value, dict):
        return {key: finite(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [finite(inner) for inner in value]
    return value
