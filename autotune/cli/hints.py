"""Commands that a message tells its reader to run next."""

import shlex
from collections.abc import Iterable

import click

CARRIED = {"db": "--db", "kernels": "--kernels"}  # what makes a command speak of the same databases and the same kernels


def hint(*words: str) -> str:
    """The command of `words`, as a shell takes it: with the --db and --kernels of the command that is running, where it takes them.

    A hint without them would answer from another database, or know nothing of the kernels that it is about.
    """
    context = click.get_current_context(silent=True)
    given = context.params if context else {}
    taken = _taken(context, words) if context else set()
    where = [word for name, option in CARRIED.items() if given.get(name) and name in taken for word in (option, str(given[name]))]
    return shlex.join(["autotune", *words, *where])


def _taken(context: click.Context, words: Iterable[str]) -> set[str]:
    """The names of the options of the command that `words` begin with."""
    found = context.find_root().command
    for word in words:
        if not isinstance(found, click.Group) or (below := found.get_command(context, word)) is None:
            break
        found = below
    return {parameter.name for parameter in found.params if parameter.name}
