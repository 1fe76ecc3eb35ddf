"""Every numeric option of every command refuses what is no number that it could use: nan, infinity, what lies outside its range."""

from collections.abc import Iterator

import click
import pytest

from autotune.backends.select import select
from autotune.cli import autotune
from autotune.errors import UsageError
from tests.command import refused


def numeric(group: click.Group = autotune, name: str = "") -> Iterator[tuple[str, click.Option]]:
    """The options of all commands that take a number, with the command."""
    context = click.Context(group)
    for word in group.list_commands(context):
        command = group.get_command(context, word)
        assert command is not None
        if isinstance(command, click.Group):
            yield from numeric(command, f"{name} {word}".strip())
            continue
        numbers = (click.types.FloatParamType, click.types.IntParamType)
        yield from ((f"{name} {word}".strip(), p) for p in command.params if isinstance(p, click.Option) and isinstance(p.type, numbers))


OPTIONS = list(numeric())


def test_all_numeric_options_are_found() -> None:
    found = {(command, option.opts[-1]) for command, option in OPTIONS}
    expected = {("sweep", f"--{name}") for name in ("trials", "seconds", "until-gain", "seed", "jobs", "hang-timeout")}
    assert found >= expected | {("compare", "--tolerance"), ("prune", "--older-than"), ("verify", "--jobs"), ("compile", "--jobs")}


@pytest.mark.parametrize("written", ["nan", "-nan", "inf", "-inf", "1e999", "-1", "one", ""])
@pytest.mark.parametrize(("command", "option"), OPTIONS, ids=lambda value: value if isinstance(value, str) else value.opts[-1])
def test_a_number_that_makes_no_sense_is_refused(command: str, option: click.Option, written: str) -> None:
    with pytest.raises(click.BadParameter):
        option.type.convert(written, option, None)


def test_the_refusal_is_one_sentence() -> None:
    assert "Invalid value for '--seconds': nan is not a finite number; autotune sweep --help" in refused(
        "sweep", "softmax", "--seconds", "nan"
    )
    assert "Invalid value for '--hang-timeout'" in refused("sweep", "softmax", "--hang-timeout", "1e9")


@pytest.mark.parametrize("seconds", [float("nan"), float("inf"), 0.0, -1.0, 1e9])
def test_a_hang_timeout_that_makes_no_sense_is_refused_from_python_too(seconds: float) -> None:
    with pytest.raises(UsageError, match=r"^a hang timeout of .* s is none; give seconds above 0 and up to 1e\+06$"):
        select("emulator", hang_timeout_s=seconds)


def test_no_compilers_are_too_few() -> None:
    with pytest.raises(UsageError, match=r"^0 compilers at once build nothing; give 1 or more"):
        select("emulator", jobs=0)
