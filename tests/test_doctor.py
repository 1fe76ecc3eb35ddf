"""`autotune doctor`: what is here, what is missing, what each is for and how to get it."""

import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from autotune.cli.doctor import PACKAGES
from tests.command import rows, said

REPOSITORY = Path(__file__).parent.parent


def test_each_package_that_only_some_commands_need_is_there_with_its_version() -> None:
    found = {row["what"]: row for row in rows("doctor")}
    assert {name for name, *_ in PACKAGES} <= set(found)
    assert found["vl-convert"]["state"] == "ok"
    assert found["vl-convert"]["said"] == f"{version('vl-convert-python')}, for autotune report"
    assert found["cuda-bindings"]["said"] == f"{version('cuda-bindings')}, for dispatch on a GPU"


def test_every_column_has_a_heading() -> None:
    head = said("doctor").splitlines()[0].split("  ")
    assert [heading.strip() for heading in head if heading.strip()] == ["what", "state", "what was found"]


@pytest.mark.parametrize("name", [name for name, *_ in PACKAGES])
def test_a_package_that_is_missing_is_named_with_what_it_is_for_and_how_to_get_it(name: str) -> None:
    _, module, _, purpose, how = next(package for package in PACKAGES if package[0] == name)
    hide = f"import sys; from autotune.cli.doctor import PACKAGES, _package; sys.modules[{module.partition('.')[0]!r}] = None; "
    code = hide + f"print(_package(*next(p for p in PACKAGES if p[0] == {name!r})))"
    environment = os.environ | {"PYTHONPATH": str(REPOSITORY)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, timeout=60)
    assert "'state': 'missing'" in done.stdout, done
    assert f"for {purpose}: {how}" in done.stdout
