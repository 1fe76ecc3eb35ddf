"""The search: which configuration to measure next, and when to stop."""

from autotune.search.budget import Budget
from autotune.search.study import Study

__all__ = ["Budget", "Study"]
