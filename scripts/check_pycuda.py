"""Shows on a machine without a GPU that `install_pycuda.py` works: a library with the driver's functions stands in for the driver.

Two new environments get PyCUDA, one with the machine's CUDA toolkit (where there is one) and one without any, and import it.
Takes some minutes, mostly PyCUDA's own build: `make pycuda-check`.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CUDA = (13, 0)


def main() -> int:
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    with tempfile.TemporaryDirectory(prefix="pycuda-check-") as named:
        folder = Path(named)
        make_driver(folder)
        check(folder, "without a toolkit", nvcc=False)
        if shutil.which("nvcc"):
            check(folder, "with the machine's toolkit", nvcc=True)
    return 0


def make_driver(folder: Path) -> None:
    """Build libcuda.so.1 in `folder`: every function that cuda.h declares, each of which fails, except that the version is told."""
    wheels = folder / "wheels"
    run(
        [
            sys.executable,
            "-m",
            "pip",
            "install",
            "--quiet",
            "--no-deps",
            "--target",
            str(wheels),
            f"nvidia-cuda-runtime=={CUDA[0]}.{CUDA[1]}.*",
        ]
    )
    (include,) = (path.parent for path in wheels.rglob("cuda.h"))
    source = folder / "driver.c"
    source.write_text("#define __CUDA_API_VERSION_INTERNAL\n#include <cuda.h>\n", encoding="utf-8")
    header = run(["gcc", "-E", "-P", f"-I{include}", str(source)], capture=True)
    names = {*re.findall(r"\b(cu[A-Z]\w*)\(", header), "cuProfilerInitialize", "cuProfilerStart", "cuProfilerStop"}  # of another header
    names.discard("cuDriverGetVersion")
    lines = [f"int {name}(void) {{ return 34; }}" for name in sorted(names)]  # 34 is CUDA_ERROR_STUB_LIBRARY
    told = f"int cuDriverGetVersion(int* version) {{ *version = {CUDA[0] * 1000 + CUDA[1] * 10}; return 0; }}"
    source.write_text("\n".join([*lines, told, ""]), encoding="utf-8")
    run(["gcc", "-shared", "-fPIC", "-fno-builtin", "-Wl,-soname,libcuda.so.1", "-o", str(folder / "libcuda.so.1"), str(source)])
    print(f"a driver with {len(names) + 1} functions stands in for NVIDIA's")


def check(folder: Path, title: str, *, nvcc: bool) -> None:
    began = time.monotonic()
    environment = folder / title.replace(" ", "-").replace("'", "")
    venv.create(environment, with_pip=True)
    python = str(environment / "bin" / "python")
    home = folder / "home"
    home.mkdir(exist_ok=True)
    path = os.environ["PATH"] if nvcc else path_without_nvcc(folder)
    variables = {**os.environ, "PATH": path, "LD_LIBRARY_PATH": str(folder), "HOME": str(home)}
    variables.pop("CUDA_HOME", None)
    run([python, "-m", "pip", "install", "--quiet", "setuptools>=77", "wheel"])
    run([python, "-m", "pip", "install", "--quiet", "--no-build-isolation", "--editable", str(ROOT)])
    run([python, str(ROOT / "scripts" / "install_pycuda.py")], variables)
    run([python, "-c", PROOF], variables)
    # pip keeps a cache and asks rustc, where there is one, for its version: neither is ours.
    written = [path for path in home.rglob("*") if path.is_file() and not {".cache", ".rustup"} & set(path.parts)]
    assert not written, f"written into the user's home: {written}"
    print(f"{title}: installed, imported and a kernel compiled in {time.monotonic() - began:.0f} s")


# PyCUDA's compile path up to a cubin, with the nvcc that autotune finds.
PROOF = """
import pycuda.compiler, pycuda.driver
from autotune import nvcc
print("PyCUDA", pycuda.VERSION_TEXT, "built for CUDA", pycuda.driver.get_version(), "and", nvcc.version(nvcc.find()), "in", nvcc.find())
source = '#include <cuda_fp16.h>\\nextern "C" __global__ void twice(__half* x) { x[threadIdx.x] = x[threadIdx.x] + x[threadIdx.x]; }'
cubin = pycuda.compiler.compile(source, nvcc=nvcc.find(), arch="sm_90", no_extern_c=True, cache_dir=False)
assert cubin[:4] == b"\\x7fELF"
"""


def path_without_nvcc(folder: Path) -> str:
    """A folder of links to all programs on PATH except nvcc, as PATH."""
    links = folder / "bin"
    links.mkdir(exist_ok=True)
    for place in os.environ["PATH"].split(os.pathsep):
        for program in Path(place).glob("*"):
            if program.name != "nvcc" and not (links / program.name).is_symlink():
                (links / program.name).symlink_to(program.resolve())
    return str(links)


def run(command: list[str], variables: dict[str, str] | None = None, *, capture: bool = False) -> str:
    done = subprocess.run(command, check=True, env=variables, text=True, stdout=subprocess.PIPE if capture else None)
    return done.stdout or ""


if __name__ == "__main__":
    sys.exit(main())
