"""The package holds what it needs, runs from anywhere, and imports little; `make sweep` does what it says."""

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from configparser import ConfigParser
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
NOT_OURS = shutil.ignore_patterns(".*", "__pycache__", "build", "dist", "*.egg-info", "*.sqlite-*", "shared")

# What only the tuner, the command line or a GPU needs.
HEAVY = ("optuna", "sqlite_utils", "sqlalchemy", "pycuda", "cuda", "pynvml", "rich", "click", "torch", "cupy")


def settings() -> ConfigParser:
    parser = ConfigParser()
    parser.read(ROOT / "setup.cfg", encoding="utf-8")
    return parser


def run(*command: str | Path, cwd: Path, **variables: str) -> str:
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "", **variables}
    done = subprocess.run(
        [str(part) for part in command], cwd=cwd, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The source archive, made from a copy, so that a build leaves nothing in the checkout and finds nothing old there."""
    folder = tmp_path_factory.mktemp("sdist")
    shutil.copytree(ROOT, folder / "copy", ignore=NOT_OURS)
    return _built("sdist", folder / "copy", folder)


@pytest.fixture(scope="module")
def wheel(sdist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, made from the source archive alone."""
    folder = tmp_path_factory.mktemp("wheel")
    shutil.unpack_archive(sdist, folder)
    (source,) = folder.iterdir()
    return _built("wheel", source, folder)


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of a new environment that has the wheel, and sees the libraries of this one."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, with_pip=False)
    python = folder / "bin" / "python"
    run(sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-index", "--no-deps", wheel, cwd=folder)
    (packages,) = folder.glob("lib/python*/site-packages")
    # A path that a .pth file names comes last, and .pth files in it are not read: an editable install there stays unseen.
    (packages / "libraries.pth").write_text(sysconfig.get_path("purelib") + "\n", encoding="utf-8")
    return python


def _built(kind: str, source: Path, folder: Path) -> Path:
    code = f"import sys; from setuptools import build_meta; print(build_meta.build_{kind}(sys.argv[1]))"
    return folder / run(sys.executable, "-c", code, folder, cwd=source).splitlines()[-1]


def test_setup_cfg_lists_every_package_of_the_tree() -> None:
    listed = set(settings()["options"]["packages"].split())
    code = {".".join(path.relative_to(ROOT).parent.parts) for path in (ROOT / "autotune").rglob("*.py")}
    data = {
        ".".join(("autotune", *folder.relative_to(ROOT).parts))
        for name in ("kernels", "templates", "results")
        for folder in (ROOT / name, *(ROOT / name).rglob("*"))
        if folder.is_dir() and folder.name != "__pycache__"
    }
    assert listed == code | data


def test_the_wheel_holds_every_file_that_is_read_at_run_time(wheel: Path) -> None:
    within = set(zipfile.ZipFile(wheel).namelist())
    needed = {
        path.relative_to(ROOT).as_posix() if place == "autotune" else f"autotune/{path.relative_to(ROOT).as_posix()}"
        for place in ("autotune", "kernels", "templates", "results")
        for path in (ROOT / place).rglob("*")
        if path.is_file()
        and path.suffix in (".py", ".typed", ".cpp", ".h", ".cu", ".cuh", ".sqlite", ".md", ".txt", ".html", ".css", ".js", ".json")
    }
    assert not needed - within
    assert {name for name in within if ".dist-info/" not in name} <= needed


def test_nothing_is_installed_beside_the_package(wheel: Path) -> None:
    tops = {name.split("/")[0] for name in zipfile.ZipFile(wheel).namelist()}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"autotune"}


def test_the_source_archive_can_be_tested(sdist: Path) -> None:
    with tarfile.open(sdist) as archive:
        within = {name.partition("/")[2] for name in archive.getnames()}
    needed = {"Makefile", "setup.cfg", "pyproject.toml", "README.md", "CHANGELOG.md", "CONTRIBUTING.md", "LICENSE", "docs/command_line.md"}
    needed |= {path.relative_to(ROOT).as_posix() for place in ("tests", "scripts") for path in (ROOT / place).rglob("*.py")}
    assert not needed - within


def test_the_installed_package_sweeps_in_an_empty_folder(installed: Path, tmp_path: Path) -> None:
    autotune = installed.with_name("autotune")
    sweep = ("sweep", "softmax", "--size", "4x64", "--device", "emulator", "--trials", "2", "--db", "x.sqlite")
    assert "emulator" in run(autotune, *sweep, cwd=tmp_path)
    assert (tmp_path / "x.sqlite").is_file()
    place = run(installed, "-c", "import autotune; print(autotune.__file__)", cwd=tmp_path)
    assert Path(place.strip()).is_relative_to(installed.parent.parent)


def test_the_installed_package_replays_what_it_ships(installed: Path, tmp_path: Path) -> None:
    told = run(
        installed.with_name("autotune"), "sweep", "softmax", "--device", "recorded", "--trials", "20", "--db", "x.sqlite", cwd=tmp_path
    )
    assert told
    assert all("recorded on NVIDIA H200" in line for line in told.splitlines() if line.startswith(("softmax", "stored")))


@pytest.mark.parametrize("name", ["kernels", "templates", "results"])
def test_a_package_of_yours_with_the_name_of_a_folder_of_ours_is_found(installed: Path, tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir()
    (tmp_path / name / "__init__.py").write_text("MINE = 1\n", encoding="utf-8")
    code = f"import {name}, autotune.catalogue; print({name}.MINE, autotune.catalogue.operation_names())"
    for python, cwd, path in ((installed, tmp_path, ""), (Path(sys.executable), ROOT, str(tmp_path))):
        assert run(python, "-c", code, cwd=cwd, PYTHONPATH=path) == "1 ['softmax']\n"


def test_importing_autotune_imports_neither_the_tuner_nor_the_gpu_libraries(installed: Path, tmp_path: Path) -> None:
    code = "import sys, autotune; print(*sorted({name.partition('.')[0] for name in sys.modules}))"
    assert not set(HEAVY) & set(run(installed, "-c", code, cwd=tmp_path).split())


@pytest.mark.parametrize("imports", ["autotune", "autotune.dispatch", "autotune.api", "autotune.database", "autotune.cli"])
def test_importing_touches_no_gpu(installed: Path, tmp_path: Path, imports: str) -> None:
    code = f"import {imports}; print('libcuda' in open('/proc/self/maps').read())"
    assert run(installed, "-c", code, cwd=tmp_path) == "False\n"


def test_pycuda_is_imported_by_the_cuda_backend_alone() -> None:
    importing = [
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "autotune").rglob("*.py")
        if re.search(r"^\s*(?:import|from) pycuda\b", path.read_text(encoding="utf-8"), re.MULTILINE)
    ]
    assert importing
    assert all(name.startswith("autotune/backends/cuda") for name in importing)


def test_make_sweep_without_a_gpu_executes_source_replays_recordings_and_repeats_nothing(tmp_path: Path) -> None:
    # The environment of this Python is taken as installed: -o leaves it alone.
    make = ("make", f"VENV={sys.prefix}", "-o", f"{sys.prefix}/.installed", "sweep")
    first = run(*make, cwd=ROOT, AUTOTUNE_DB=str(tmp_path / "x.sqlite"))
    assert "softmax 64x1000 float32 on emulator" in first
    assert "softmax 4096x4096 float32 (recorded on NVIDIA H200)" in first
    for version in ("v0", "v1", "v2", "v3", "v4"):
        assert re.search(rf"^\s*{version}\b", first, re.MULTILINE), version
    again = run(*make, cwd=ROOT, AUTOTUNE_DB=str(tmp_path / "x.sqlite"))
    assert re.findall(r"^(\d+) new trials", again, re.MULTILINE) == ["0", "0"], again
