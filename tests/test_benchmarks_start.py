"""Benchmarks and scripts that cannot begin say why in one sentence, and end with status 2."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

from autotune.database import shipped_databases
from autotune.errors import UsageError
from benchmarks import starting

ROOT = Path(__file__).resolve().parent.parent
SCRIPTS = [
    path
    for folder in ("benchmarks", "scripts")
    for path in sorted((ROOT / folder).glob("*.py"))
    if '__name__ == "__main__"' in path.read_text()
]
NEED_TORCH = ("dispatch_overhead", "dispatch_transformer", "softmax_peers")


def run(script: Path, *arguments: str) -> tuple[int, str, str]:
    done = subprocess.run([sys.executable, str(script), *arguments], capture_output=True, text=True, timeout=60)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_each_tells_what_it_takes_or_what_it_lacks(script: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    status, out, err = run(script, "--help")
    if script.stem in NEED_TORCH and importlib.util.find_spec("torch") is None:
        assert (status, out) == (2, "")
        assert err == f"{script.name}: this needs torch, which {sys.executable} does not have; install with: pip install torch\n"
    else:
        assert (status, err) == (0, "")
        assert "usage" in out.lower()
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--methods", "nonsense"), "method 'nonsense' is not known; give all, or some of these, separated by ';': ours; "),
        (("--methods", "ours;"), "method '' is not known"),
        (("nix",), "nix does not exist; give .json, "),
        ((__file__,), f"{__file__} is no recorded space; give .json, "),
    ],
)
def test_a_search_that_cannot_be_measured_is_refused(arguments: tuple[str, ...], said: str) -> None:
    status, out, err = run(ROOT / "benchmarks" / "search_quality.py", str(shipped_databases()[0]), *arguments)
    assert (status, out) == (2, "")
    assert err.startswith(f"search_quality.py: {said}")
    assert len(err.splitlines()) == 1


def test_without_a_gpu_what_measures_one_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")  # where there is one, the driver of the process that is started sees none
    status, _, err = run(ROOT / "benchmarks" / "tuning_cost.py", "--out", str(tmp_path / "x.json"))
    assert (status, err) == (2, "tuning_cost.py: no CUDA GPU was found, and this measures one; run it on a machine that has one\n")


def test_a_library_that_is_not_there_is_named_with_what_installs_it(capsys: pytest.CaptureFixture[str]) -> None:
    starting.require("click", "numpy")
    with pytest.raises(SystemExit) as ended:
        starting.require("click", "no_such_library")
    assert ended.value.code == 2
    assert "this needs no_such_library, which" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "status", "said"),
    [
        (UsageError("x came; give y"), 2, "x came; give y"),
        (FileNotFoundError(2, "No such file", "nix.json"), 2, "nix.json does not exist; name a file that does"),
    ],
)
def test_what_a_benchmark_is_given_and_cannot_use_is_one_sentence(
    error: Exception, status: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def main() -> None:
        raise error

    with pytest.raises(SystemExit) as ended:
        starting.started(main)
    assert ended.value.code == status
    assert capsys.readouterr().err.endswith(f": {said}\n")


def test_a_fault_of_a_benchmark_itself_keeps_its_traceback() -> None:
    def main() -> None:
        raise ModuleNotFoundError("No module named 'autotun'", name="autotun")

    with pytest.raises(ModuleNotFoundError):
        starting.started(main)
