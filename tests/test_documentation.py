"""The documents are true: their commands run, their Python names exist, and the reference says what the commands say.

A block fenced as `console` is run, its lines that begin with `$ ` in order; all blocks of a page share one folder, in which the blocks
that begin with a comment of a path are files. A block that needs a GPU has the comment `<!-- needs a GPU -->` above it.
"""

import ast
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import click
import pytest

import autotune
from scripts.command_line import commands, reference

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(ROOT.glob("docs/*.md")), ROOT / "results" / "README.md"]
FENCE = re.compile(r"(?P<gpu><!-- needs a GPU -->\s*)?^```(?P<language>\w*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)


class Block(NamedTuple):
    language: str
    text: str
    needs_gpu: bool


def blocks(page: Path) -> list[Block]:
    found = FENCE.finditer(page.read_text(encoding="utf-8"))
    return [Block(match["language"], match["text"], bool(match["gpu"])) for match in found]


def shell_commands(page: Path) -> list[str]:
    """The commands of `page` that need no GPU. A line that ends in a backslash goes on in the next one."""
    shown = "".join(block.text for block in blocks(page) if block.language == "console" and not block.needs_gpu)
    return re.findall(r"^\$ ((?:.*\\\n)*.*)$", shown, re.MULTILINE)


RUNNABLE = [page for page in PAGES if shell_commands(page)]


def test_the_readme_shows_a_sweep_and_an_inspection_that_run() -> None:
    shown = shell_commands(ROOT / "README.md")
    for verb in ("sweep", "inspect", "explain"):
        assert any(command.startswith(f"autotune {verb} ") for command in shown), verb


@pytest.mark.parametrize("page", RUNNABLE, ids=lambda page: page.name)
def test_every_command_of_a_page_runs(page: Path, tmp_path: Path) -> None:
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "AUTOTUNE_DB": str(tmp_path / "default.sqlite"),
        "CUDA_VISIBLE_DEVICES": "",  # on a machine with a GPU the pages say the same
    }
    for block in blocks(page):
        if named := re.match(r"(?:#|//) (mine/\S+)\n", block.text):
            (tmp_path / named[1]).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / named[1]).write_text(block.text, encoding="utf-8")
    for command in shell_commands(page):
        done = subprocess.run(
            ["bash", "-ec", command], cwd=tmp_path, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"


def test_the_version_that_contributors_are_shown_computes_softmax(tmp_path: Path) -> None:
    folder = tmp_path / "softmax"
    shutil.copytree(ROOT / "kernels" / "softmax", folder, ignore=shutil.ignore_patterns("v*.py", "__pycache__"))
    shutil.copy(ROOT / "kernels" / "softmax" / "v2.py", folder)  # the safe configuration is one of v2
    for block in blocks(ROOT / "CONTRIBUTING.md"):
        if block.language in ("cuda", "python"):
            name = "v9.cu" if block.language == "cuda" else "v9.py"
            (folder / name).write_text(block.text.replace("vN", "v9"), encoding="utf-8")
    shown = ["verify", "softmax", "--kernels", str(tmp_path), "--version", "v9", "--device", "emulator", "--size", "5x7", "--size", "9x100"]
    done = subprocess.run([sys.executable, "-m", "autotune", *shown], cwd=tmp_path, capture_output=True, text=True)
    assert done.stdout.endswith("8 right, 0 wrong\n"), done.stdout + done.stderr


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_python_in_a_page_parses_and_names_what_there_is(page: Path) -> None:
    for block in blocks(page):
        if block.language == "python":
            ast.parse(block.text)
            for name in re.findall(r"\bautotune\.(\w+)\(", block.text):
                assert hasattr(autotune, name), f"{page.name} uses autotune.{name}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_make_targets_that_a_page_names_exist(page: Path) -> None:
    for target in sorted(
        set(re.findall(r"\bmake ([a-z][a-z-]*)\b(?=[`\s]*(?:$|`|#|[A-Z]+=))", page.read_text(encoding="utf-8"), re.MULTILINE))
    ):
        assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE), f"{page.name} names make {target}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_to_files_lead_somewhere(page: Path) -> None:
    prose = FENCE.sub("", page.read_text(encoding="utf-8"))
    for target in re.findall(r"\]\((?!https?:|#)([^)#]+)", prose):
        assert (page.parent / target).exists(), f"{page.name} links to {target}"


@pytest.mark.parametrize(("name", "command"), list(commands()), ids=lambda value: value if isinstance(value, str) else "")
def test_every_command_has_help_and_every_option_but_the_obvious_says_what_it_does(name: str, command: click.Command) -> None:
    assert command.help, name
    silent = [option.opts[0] for option in command.params if isinstance(option, click.Option) and not option.help]
    assert set(silent) <= {"--seed"}, name


def test_the_reference_of_the_command_line_is_up_to_date() -> None:
    written = (ROOT / "docs" / "command_line.md").read_text(encoding="utf-8")
    assert written == reference(), "run: make docs"
