"""Tunes templated CUDA kernels, remembers every measurement, and picks the right kernel at run time."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from autotune.errors import AutotuneError, UsageError

__version__ = "0.1.0"

if TYPE_CHECKING:
    from autotune.api import sweep
    from autotune.database import Database
    from autotune.dispatch import Dispatcher, softmax

# Imported when first asked for: neither the tuner's libraries nor a GPU's may be needed to import the other half.
_HOMES = {"Database": "autotune.database", "Dispatcher": "autotune.dispatch", "softmax": "autotune.dispatch", "sweep": "autotune.api"}

__all__ = ["AutotuneError", "Database", "Dispatcher", "UsageError", "__version__", "softmax", "sweep"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'autotune' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_HOMES[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted(set(globals()) | set(_HOMES))
