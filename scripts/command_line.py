"""Writes the reference of the command line from the commands themselves: `make docs`.

python scripts/command_line.py docs/command_line.md
"""

from collections.abc import Iterator
from pathlib import Path

import click

from autotune.cli import autotune

HEAD = """# Command line

Written by `make docs` from what `autotune COMMAND --help` says. What goes wrong is one sentence on standard error.
"""

# click's name of a type -> what stands for a value of it
VALUES = {
    "text": "NAME",
    "integer": "N",
    "integer range": "N",
    "float": "X",
    "float range": "X",
    "path": "PATH",
    "file": "FILE",
    "directory": "DIR",
}


def commands(command: click.Command = autotune, path: str = "autotune") -> Iterator[tuple[str, click.Command]]:
    """Every command with its full name, each group before its members."""
    yield path, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            member = command.get_command(context, name)
            assert member is not None, f"{path} lists {name} and has no such command"
            yield from commands(member, f"{path} {name}")


def reference() -> str:
    """The page as Markdown."""
    return HEAD + "".join(_section(name, command) for name, command in commands())


def _section(name: str, command: click.Command) -> str:
    usage = " ".join([name, *command.collect_usage_pieces(click.Context(command, info_name=name))])
    options = [_row(option) for option in command.params if isinstance(option, click.Option) and not option.hidden]
    table = "\n| option | |\n| --- | --- |\n" + "".join(options) if options else ""
    return f"\n## {name}\n\n    {usage}\n\n{' '.join((command.help or '').split())}\n{table}"


def _row(option: click.Option) -> str:
    names = ", ".join(f"`{name}`" for name in option.opts)
    value = "" if option.is_flag else f" {_value(option)}"
    stated = isinstance(option.default, str | int | float) and not option.is_flag
    said = " ".join((option.help or "").split()) + (f" [default: {option.default}]" if stated else "")
    said += " [required]" if option.required else ""
    return f"| {names}{value} | {said.strip().replace('|', ' or ')} |\n"


def _value(option: click.Option) -> str:
    if isinstance(option.type, click.Choice):
        return " or ".join(map(str, option.type.choices))
    return option.metavar or VALUES[option.type.name]


@click.command()
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
def main(file: Path) -> None:
    """Write the reference of the command line to FILE."""
    file.write_text(reference(), encoding="utf-8")


if __name__ == "__main__":
    main()
