"""Where PyCUDA's installer finds the driver and the toolkit, and what it says when there is none. `make pycuda-check` builds for real."""

import ctypes
import os
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from autotune import nvcc
from autotune.errors import UsageError
from scripts import install_pycuda
from scripts.install_pycuda import Driver, find_toolkit, install_toolkit, siteconf

ROOT = Path(__file__).resolve().parent.parent
DRIVER = "int cuDriverGetVersion(int* version) { *version = 13020; return 0; }"


def program(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
    path.chmod(0o755)
    return path


def test_the_driver_is_found_where_the_loader_finds_it_and_says_its_cuda(tmp_path: Path) -> None:
    (tmp_path / "driver.c").write_text(DRIVER, encoding="utf-8")
    library = tmp_path / "libcuda.so.1"
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", library, tmp_path / "driver.c"], check=True)
    code = "from scripts.install_pycuda import find_driver; print(*find_driver())"
    environment = {**os.environ, "LD_LIBRARY_PATH": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == f"{library} (13, 2)\n"


def test_without_a_driver_the_installer_says_so_in_one_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def missing(name: str) -> ctypes.CDLL:
        raise OSError(f"{name}: cannot open shared object file")

    monkeypatch.setattr(ctypes, "CDLL", missing)
    assert install_pycuda.main([]) == 2
    said = capsys.readouterr().err
    assert said.startswith("install_pycuda: there is no libcuda.so.1, which NVIDIA's driver brings")
    assert said.count("\n") == 1


def test_a_driver_too_old_for_nvidias_wheels_is_refused_before_anything_is_fetched() -> None:
    with pytest.raises(UsageError, match=r"wheels have none for this driver's CUDA 12\.4; install that CUDA toolkit"):
        install_toolkit(["false"], [], Driver(Path("/nowhere/libcuda.so.1"), (12, 4)))


@pytest.mark.nvcc
def test_the_toolkit_is_found_behind_a_script_that_starts_its_nvcc(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    started = program(tmp_path / "bin" / "nvcc", f'exec {nvcc.find()} "$@"')
    monkeypatch.setenv("PATH", f"{started.parent}:{os.environ['PATH']}")
    root = find_toolkit()
    assert root is not None
    assert (root / "include" / "cuda.h").is_file()


def test_an_nvcc_without_headers_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    compiler = program(tmp_path / "bin" / "nvcc", "exit 0")
    monkeypatch.setenv("PATH", f"{compiler.parent}:{os.environ['PATH']}")
    with pytest.raises(UsageError, match=f"{compiler} has no include/cuda.h beside it"):
        find_toolkit()


def test_what_pycudas_build_is_told_is_python_whatever_the_folders_are_called(tmp_path: Path) -> None:
    root, libraries = tmp_path / "it's", tmp_path / 'a "driver"'
    (tmp_path / "siteconf.py").write_text(siteconf(root, libraries), encoding="utf-8")
    told = runpy.run_path(str(tmp_path / "siteconf.py"))
    assert (told["CUDA_ROOT"], told["CUDADRV_LIB_DIR"], told["CUDA_ENABLE_CURAND"]) == (str(root), [str(libraries)], False)


def test_the_version_of_pycuda_is_that_of_the_extra() -> None:
    assert f"\n    {install_pycuda.requirement()}\n" in (ROOT / "setup.cfg").read_text(encoding="utf-8")
