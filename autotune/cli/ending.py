"""SIGTERM and SIGHUP end a command as Ctrl-C does: a scheduler or a terminal that goes is no reason to lose what was measured."""

import signal
from types import FrameType

INTERRUPTED = 128 + signal.SIGINT
_ENDING = (signal.SIGTERM, signal.SIGHUP)
_received: list[int] = []


def heed() -> None:
    """Have these signals raise KeyboardInterrupt, unless somebody, such as nohup, has decided about them before."""
    _received.clear()
    for number in _ENDING:
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, _end)


def status() -> int:
    """The exit status of a command that was interrupted: 128 and the number of the signal."""
    return 128 + _received[0] if _received else INTERRUPTED


def _end(number: int, _: FrameType | None) -> None:
    _received.append(number)
    raise KeyboardInterrupt
