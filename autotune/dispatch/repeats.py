"""Calls that come again with the same memory, as those of a model or a server do: nothing is left to be checked or written for them.

What depends on the addresses alone was checked before, and a launch of its own holds every word that the driver reads.
"""

from collections.abc import Callable, Hashable
from typing import Any

PLACES = 256  # a power of two: for calls seen once, each in the place that its hash says, until another one comes there
MOST_READY = 1024  # beyond it all are forgotten, so that ever new memory does not fill that of the host
MOST_CHANGES = 8  # how often one call is made ready: addresses that stand for ever other arrays cost more than they spare


class Repeats:
    """What is ready for a call, by a key that tells it from others.

    `of` is read without a lock: what it holds is whole before it is there. `seen` holds a call's key at its hash modulo `PLACES`, and the
    call writes it there: it is on the path of those that never come again.
    """

    def __init__(self) -> None:
        self.of: dict[Hashable, Any] = {}
        self.seen: list[Hashable] = [None] * PLACES
        self._changes: dict[Hashable, int] = {}

    def keep(self, key: Hashable, make: Callable[[], Any]) -> None:
        """From now on what `make` returns is ready for the call of `key`; unless it was changed too often, when nothing is any more."""
        changes = self._changes.get(key, 0)
        if changes > MOST_CHANGES:
            return
        if len(self._changes) >= MOST_READY:
            self.of.clear()
            self._changes.clear()
        self._changes[key] = changes + 1
        if changes == MOST_CHANGES:
            self.of.pop(key, None)
        else:
            self.of[key] = make()
