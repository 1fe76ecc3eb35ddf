"""Which kernel runs a size that was never tuned, learnt from those that were: NumPy alone, and only `model` is needed at run time.

matrix      what was measured: sizes x kernels          cover       the few kernels that suffice for all sizes
tree        a decision tree that minimises regret       neighbours  slowdowns interpolated between sizes
forest      regression over all measurements            traits      what it sees of a kernel on a problem
table       what the forest says, for all sizes         cells       how the table divides them
features    what predictors see of a problem            model       what is stored, and asked by the dispatcher
training    which of them is used, by cross-validation  dense       what to measure so that it can be told better
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from autotune.selector.matrix import Matrix
    from autotune.selector.model import Model
    from autotune.selector.regret import Regret
    from autotune.selector.training import LEAST_SIZES, Trained, train, train_all

# Imported when first asked for: a dispatcher trains nothing.
_HOMES = {
    "LEAST_SIZES": "training",
    "Matrix": "matrix",
    "Model": "model",
    "Regret": "regret",
    "Trained": "training",
    "train": "training",
    "train_all": "training",
}

__all__ = ["LEAST_SIZES", "Matrix", "Model", "Regret", "Trained", "train", "train_all"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'autotune.selector' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"autotune.selector.{_HOMES[name]}"), name)
    return value
