"""Installs PyCUDA into the Python that runs this, with the machine's CUDA toolkit, or with one from NVIDIA's wheels where there is none.

PyCUDA is published as source. It needs a CUDA toolkit and the driver's library to build, and nvcc whenever a kernel is compiled. All
that it is told stands in a siteconf.py in its unpacked source: nothing is written outside the environment and a temporary folder.

    .venv/bin/python scripts/install_pycuda.py [--wheels DIR]
"""

import argparse
import configparser
import ctypes
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from autotune import nvcc
from autotune.errors import AutotuneError, UsageError

SETTINGS = Path(__file__).resolve().parent.parent / "setup.cfg"

# Before CUDA 13, NVIDIA's wheels hold ptxas but no nvcc.
FIRST_MAJOR_WITH_NVCC = 13


class Driver(NamedTuple):
    """NVIDIA's driver library, and the newest CUDA that it supports, such as (13, 0)."""

    library: Path
    cuda: tuple[int, int]


class Found(ctypes.Structure):
    """Dl_info of dladdr(3)."""

    _fields_ = (("library", ctypes.c_char_p), ("base", ctypes.c_void_p), ("symbol", ctypes.c_char_p), ("address", ctypes.c_void_p))


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Install PyCUDA into this Python.")
    parser.add_argument("--wheels", type=Path, metavar="DIR", help="install from the wheels and source archives in DIR alone")
    wheels: Path | None = parser.parse_args(arguments).wheels
    try:
        install([sys.executable, "-m", "pip"], ["--no-index", "--find-links", str(wheels.resolve())] if wheels else [])
    except AutotuneError as error:
        print(f"install_pycuda: {error}", file=sys.stderr)
        return error.exit_status
    except subprocess.CalledProcessError as error:
        print(f"install_pycuda: this failed, see above: {' '.join(error.cmd)}", file=sys.stderr)
        return 1
    return 0


def install(pip: list[str], origin: list[str]) -> None:
    """Install PyCUDA, and a CUDA toolkit before it where the machine has none. `origin` tells pip where to look.

    Raises UsageError without a driver, or where no toolkit can be had; CalledProcessError when pip fails.
    """
    driver = find_driver()
    root = find_toolkit() or install_toolkit(pip, origin, driver)
    if not importlib.util.find_spec("pycuda") and not install_built(pip, origin):
        with tempfile.TemporaryDirectory(prefix="pycuda-") as folder:
            build(pip, origin, driver, root, Path(folder))
    subprocess.run([sys.executable, "-c", "import pycuda.driver"], check=True)
    print(f"PyCUDA is installed, with the CUDA toolkit in {root}")


def find_driver() -> Driver:
    """The driver's library as the loader finds it. Raises UsageError when there is none."""
    try:
        library = ctypes.CDLL("libcuda.so.1")
    except OSError:
        raise UsageError("there is no libcuda.so.1, which NVIDIA's driver brings; install the driver, or tune on the emulator") from None
    version, found = ctypes.c_int(), Found()
    library.cuDriverGetVersion(ctypes.byref(version))
    ctypes.CDLL(None).dladdr(ctypes.cast(library.cuDriverGetVersion, ctypes.c_void_p), ctypes.byref(found))
    return Driver(Path(os.fsdecode(found.library)).resolve(), (version.value // 1000, version.value % 1000 // 10))


def find_toolkit() -> Path | None:
    """The root of the toolkit that nvcc belongs to; None without nvcc. Raises UsageError when it has no cuda.h."""
    try:
        compiler = nvcc.find()
    except UsageError:
        return None
    # nvcc itself knows best: the one on PATH may be a script or a link from elsewhere.
    said = subprocess.run([compiler, "--dryrun", "-x", "cu", os.devnull], capture_output=True, text=True).stderr
    told = re.search(r"^#\$ TOP=(.+)$", said, re.MULTILINE)
    candidates = [Path(told[1])] if told else []
    candidates += [path.parent.parent for path in (Path(compiler), Path(compiler).resolve())]
    for root in candidates:
        if (root / "include" / "cuda.h").is_file():
            return root.resolve()
    raise UsageError(f"{compiler} has no include/cuda.h beside it; install the whole CUDA toolkit, or take this nvcc off PATH")


def install_toolkit(pip: list[str], origin: list[str], driver: Driver) -> Path:
    """Install the newest toolkit that `driver` supports from NVIDIA's wheels; returns its root."""
    major, minor = driver.cuda
    if major < FIRST_MAJOR_WITH_NVCC:
        raise UsageError(
            f"there is no nvcc, and NVIDIA's wheels have none for this driver's CUDA {major}.{minor}; install that CUDA toolkit"
        )
    requirement = f"cuda-toolkit[nvcc,cccl,profiler]>={FIRST_MAJOR_WITH_NVCC},<{major}.{minor + 1}"
    subprocess.run([*pip, "install", *origin, requirement], check=True)
    root = find_toolkit()
    if root is None:
        raise UsageError(f"{requirement} brought no nvcc; install a CUDA toolkit, or set CUDA_HOME to where it is")
    return root


def install_built(pip: list[str], origin: list[str]) -> bool:
    """Whether PyCUDA could be installed from a wheel that someone built."""
    done = subprocess.run([*pip, "install", "--quiet", *origin, "--only-binary", "pycuda", requirement()], capture_output=True)
    return done.returncode == 0


def build(pip: list[str], origin: list[str], driver: Driver, root: Path, folder: Path) -> None:
    """Build PyCUDA's source archive in `folder` and install it."""
    subprocess.run(
        [*pip, "download", *origin, "--no-deps", "--no-build-isolation", "--no-binary", "pycuda", "--dest", str(folder), requirement()],
        check=True,
    )
    (archive,) = folder.glob("*.tar.gz")
    shutil.unpack_archive(archive, folder)
    (source,) = (path.parent for path in folder.glob("*/setup.py"))
    (folder / "libcuda.so").symlink_to(driver.library)  # the linker's name for it, which only a developer's machine has
    (source / "siteconf.py").write_text(siteconf(root, folder), encoding="utf-8")
    subprocess.run([*pip, "install", *origin, "--no-build-isolation", str(source)], check=True)


def siteconf(root: Path, libraries: Path) -> str:
    """The configuration of PyCUDA's build. Without cuRAND: nothing here uses it, and its library would be needed at every import."""
    return f"CUDA_ROOT = {str(root)!r}\nCUDA_ENABLE_CURAND = False\nCUDADRV_LIB_DIR = [{str(libraries)!r}]\n"


def requirement() -> str:
    """The version of PyCUDA that the extra `cuda` asks for."""
    settings = configparser.ConfigParser()
    settings.read(SETTINGS, encoding="utf-8")
    (line,) = re.findall(r"^pycuda.*$", settings["options.extras_require"]["cuda"], re.MULTILINE)
    return str(line)


if __name__ == "__main__":
    sys.exit(main())
