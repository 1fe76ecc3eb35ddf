"""Instances built through PyCUDA: nvcc is bounded in time there too, and leaves nothing behind. Stand-ins for PyCUDA and nvcc."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

# What PyCUDA does of importance here: it runs nvcc by way of pytools in a folder of its own, and knows no limit of time.
STAND_INS = {
    "pycuda/__init__.py": "",
    "pycuda/driver.py": """
class CompileError(Exception):
    def __init__(self, msg, command_line, stdout, stderr): self.msg, self.stdout, self.stderr = msg, stdout, stderr
""",
    "pycuda/compiler.py": """
import os, shutil, tempfile, warnings
from pytools.prefork import call_capture_output
from pycuda.driver import CompileError
def compile(source, nvcc, options, no_extern_c, arch, cache_dir, target):
    assert no_extern_c and cache_dir is False
    folder = tempfile.mkdtemp()
    with open(os.path.join(folder, "kernel.cu"), "w") as file: file.write(source)
    command = [nvcc, "--" + target, *options, "-arch", arch, "kernel.cu"]
    status, out, err = call_capture_output(command, cwd=folder, error_on_nonzero=False)
    if status: raise CompileError(f"nvcc compilation of {folder}/kernel.cu failed", command, out.decode(), err.decode())
    warnings.warn("The CUDA compiler succeeded, but said the following:\\n" + (out + err).decode(), stacklevel=4)
    with open(os.path.join(folder, "kernel.cubin"), "rb") as file: binary = file.read()
    shutil.rmtree(folder)
    return binary
""",
    "pytools/__init__.py": "",
    "pytools/prefork.py": """
class DirectForker: pass
forker = DirectForker()
def call_capture_output(cmdline, cwd=None, error_on_nonzero=True): return forker.call_capture_output(cmdline, cwd, error_on_nonzero)
""",
}
NVCC = """#!/bin/sh
case "$1" in --version) echo "release 13.0, V13.0.88"; exit;; --list-gpu-code) echo sm_90; exit;; esac
grep -q "block32_unroll2" kernel.cu && { sleep 600; }
grep -q "block32_unroll4" kernel.cu && { echo "kernel.cu(7): error: no" >&2; exit 1; }
cp kernel.cu kernel.cubin
for symbol in $(grep -o "softmax_v2_float32_block[0-9]*_unroll[0-9]*" kernel.cu)
do echo "ptxas info : Compiling entry function '$symbol' for 'sm_90'"; echo "ptxas info : Used 40 registers"; done
"""
BUILD = """
import json, sys
from pathlib import Path
from autotune import catalogue, compilers
from autotune.backends.cuda_compile import Compiler
from autotune.cubins import Cubins
compilers.TIMEOUT_S = 3.0
softmax = catalogue.load("softmax")
v2 = softmax.version("v2")
compiler = Compiler("sm_90", 2, Cubins(Path(sys.argv[1])))
built = compiler.build(v2, v2.configurations()[:4], "float32")
print(json.dumps({str(c): getattr(made, "message", None) or made.resources.registers for c, made in built}))
"""


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    for name, text in STAND_INS.items():
        (tmp_path / "stand" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "stand" / name).write_text(text)
    (tmp_path / "stand" / "nvcc").write_text(NVCC)
    (tmp_path / "stand" / "nvcc").chmod(0o755)
    (tmp_path / "tmp").mkdir()
    path = os.pathsep.join([str(tmp_path / "stand"), str(Path(__file__).parent.parent), *filter(None, sys.path)])
    return {**os.environ, "PYTHONPATH": path, "PATH": f"{tmp_path / 'stand'}:{os.environ['PATH']}", "TMPDIR": str(tmp_path / "tmp")}


def test_through_pycuda_a_compiler_that_does_not_end_costs_one_configuration_and_no_folder_stays(
    environment: dict[str, str], tmp_path: Path
) -> None:
    command = [sys.executable, "-c", BUILD, str(tmp_path / "cubins")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout) == {
        "v2 block 32, unroll 1": 40,
        "v2 block 32, unroll 2": "nvcc was stopped after 3 s without an end",
        "v2 block 32, unroll 4": "kernel.cu(7): error: no",
        "v2 block 64, unroll 1": 40,
    }
    assert list((tmp_path / "tmp").iterdir()) == []
