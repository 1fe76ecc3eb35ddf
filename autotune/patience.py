"""Waiting that counts only the time in which this process ran: what stops it, Ctrl-Z or a suspended machine, may stop what it waits for."""

from collections.abc import Callable

LOOK_S = 0.5


def comes(look: Callable[[float], bool], timeout_s: float) -> bool:
    """Whether `look(seconds)`, which waits that long for something and says whether it came, finds it within `timeout_s` seconds.

    However long a look really took, it counts as what it was given.
    """
    left_s = timeout_s
    while left_s > 0:
        look_s = min(left_s, LOOK_S)
        if look(look_s):
            return True
        left_s -= look_s
    return False
