"""Runs a program that must not outlive whoever asked for it: `python warden.py FOLDER PROGRAM ARGUMENT...`.

Standard input is a lifeline: when its other end is closed, because the asker wants no more of it or was killed with SIGKILL, the program
is killed with everything that it has started, and FOLDER, where it keeps its files ("" for none), is removed.

A process of its own, because nobody can act after SIGKILL, and PR_SET_PDEATHSIG does not reach a compiler's own children.
Started with `python -I -S`, so it imports nothing but small parts of the standard library.
"""

import os
import select
import signal
import sys
from contextlib import suppress

CANNOT_START = 127  # as shells say it


def main(folder: str, program: list[str]) -> int:
    """The exit status of the program, 128 and the signal's number where a signal ended it."""
    ended, writer = os.pipe()
    os.set_blocking(writer, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(writer)
    try:
        child = os.posix_spawnp(
            program[0],
            program,
            os.environ,
            file_actions=[(os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0)],
            setpgroup=0,
            setsigdef=[signal.SIGPIPE, signal.SIGXFSZ],  # which Python ignores for itself
        )
    except OSError as error:
        sys.stderr.write(f"{program[0]} could not be started: {error.strerror}\n")
        return CANNOT_START
    while not (_abandoned() or os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT)):
        heard, _, _ = select.select([sys.stdin.fileno(), ended], [], [])
        if ended in heard:
            os.read(ended, 4096)  # what stops or continues the program is heard here, too
    with suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)  # all that it has started, before its number can become another's
    _, status = os.waitpid(child, 0)
    if folder and _abandoned():  # a program that has ended may have done so because nobody reads any more what it says
        import shutil

        shutil.rmtree(folder, ignore_errors=True)
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


def _abandoned() -> bool:
    """Whether the lifeline's other end is closed."""
    return bool(select.select([sys.stdin.fileno()], [], [], 0)[0])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
