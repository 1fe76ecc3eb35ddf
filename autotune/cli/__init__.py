"""The command line: `autotune sweep`, `inspect`, `explain`, `source`, `verify`, `doctor` and more.

Each command is a few lines over a verb of the library. What goes wrong is one sentence on standard error: exit status 2 when the
work could not start, 1 when the work itself failed or its output could not be written. 130 is Ctrl-C, 143 SIGTERM, 129 SIGHUP, and 141,
without a word, a reader of the output who is gone.
"""

import os
import sys
import warnings
from collections.abc import Sequence
from functools import cache, wraps
from importlib import import_module
from typing import Any, TextIO

import click

from autotune import __version__
from autotune.cli import ending
from autotune.cli.streams import OutputError, guard, status_of, tell
from autotune.errors import AutotuneError

# command -> module of this package that defines it under the same name; loaded when it is used, so that --help stays quick
COMMANDS = {
    "sweep": "sweep",
    "inspect": "inspect",
    "explain": "explain",
    "source": "explain",
    "verify": "verify",
    "bench": "bench",
    "compile": "compile",
    "compare": "compare",
    "export": "share",
    "import": "share",
    "rebuild": "share",
    "prune": "prune",
    "pin": "pins",
    "unpin": "pins",
    "block": "pins",
    "unblock": "pins",
    "report": "report",
    "doctor": "doctor",
}


class _Commands(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        return _command(cmd_name)


@cache
def _command(name: str) -> click.Command:
    """The command called `name`, in which a function of a definition that does not come back ends it with a sentence."""
    command: click.Command = getattr(import_module(f"autotune.cli.{COMMANDS[name]}"), f"{name}_command")
    callback = command.callback
    assert callback

    @wraps(callback)
    def watched(*arguments: Any, **options: Any) -> Any:
        from autotune.guard import ALLOWED_S, guarded

        with guarded(options.get("hang_timeout", ALLOWED_S), may_be_longer="hang_timeout" in options):
            return callback(*arguments, **options)

    command.callback = watched
    return command


@click.command(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="autotune")
def autotune() -> None:
    """Tune templated CUDA kernels, remember every measurement, pick the right kernel at run time.

    Exit status: 0 done, 1 the work itself failed or its output could not be written, 2 it could not start, 130 interrupted by Ctrl-C, 143
    by SIGTERM, 129 by SIGHUP, 141 whoever read the output is gone.
    """


def main(arguments: Sequence[str] | None = None) -> None:
    """The `autotune` command. Ends the process with 0 (done), 1 (the work, or its output, failed) or 2 (it could not start)."""
    warnings.showwarning = _warn
    try:
        guard()
        ending.heed()
        status = _status(arguments)
        sys.stdout.flush()
    except OutputError as error:
        status = status_of(error)
    sys.exit(status)


def _status(arguments: Sequence[str] | None) -> int:
    """Run the command; what goes wrong is told, and is an exit status."""
    try:
        status = autotune.main(arguments, prog_name="autotune", standalone_mode=False)
        return status if isinstance(status, int) else 0
    except OutputError:
        raise
    except AutotuneError as error:
        return _told(str(error), error.exit_status)
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message())
        return 2
    except click.UsageError as error:
        command = error.ctx.command_path if error.ctx else "autotune"
        message = error.format_message().rstrip(".").replace("\n", " ")
        return _told(f"{message}; {command} --help tells what is accepted", 2)
    except click.ClickException as error:
        return _told(error.format_message(), 2)
    except (click.Abort, KeyboardInterrupt):
        return _told("interrupted", ending.status())
    except Exception as error:
        if os.environ.get("AUTOTUNE_TRACEBACK"):
            raise
        said = " ".join(str(error).split())
        return _told(f"{type(error).__name__}: {said}; this was not foreseen: AUTOTUNE_TRACEBACK=1 shows where it happened", 1)


def _warn(
    message: Warning | str, category: type[Warning], filename: str, lineno: int, file: TextIO | None = None, line: str | None = None
) -> None:
    """A warning as one sentence, without the place in our source that gave it."""
    tell(f"autotune: warning: {message}")


def _told(message: str, status: int) -> int:
    tell(f"autotune: {message}")
    return status
