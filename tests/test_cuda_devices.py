"""`--device cuda:I` is one GPU for everything: the context, what is compiled, and the clocks, which NVML numbers in its own way.

A stand-in for PyCUDA and one for NVML tell of two GPUs of different kinds, in processes of their own.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

LIBCUDA = "int cuInit(unsigned flags) { return 0; } int cuDeviceGetCount(int* count) { *count = 2; return 0; }"

PYCUDA = """
class Error(Exception):
    pass
MemoryError = CompileError = type("Refused", (Error,), {})
def init(): pass
def get_driver_version(): return 13000
class device_attribute:
    def __getattr__(self, name): return name
device_attribute = device_attribute()
class Context:
    def __init__(self, ordinal): self.ordinal = ordinal
    def push(self): current.append(self.ordinal)
    def pop(self): current.pop()
    def synchronize(self):
        if current != [self.ordinal]: raise Error(f"contexts {current} are current, not {self.ordinal}")
current = []
class Stream: pass
class Device:
    @staticmethod
    def count(): return 2
    def __init__(self, ordinal): self.ordinal = ordinal
    def name(self): return ("NVIDIA A100", "NVIDIA H200")[self.ordinal]
    def compute_capability(self): return ((8, 0), (9, 0))[self.ordinal]
    def get_attribute(self, name): return 1024 + self.ordinal
    def pci_bus_id(self): return ("0000:9B:00.0", "0000:1B:00.0")[self.ordinal]
    def retain_primary_context(self): return Context(self.ordinal)
"""

NVML = """
def nvmlInit(): pass
def nvmlDeviceGetHandleByPciBusId(bus): return [b"0000:1B:00.0", b"0000:9B:00.0"].index(bus)
def nvmlDeviceGetClockInfo(index, kind): return (1980, 1410)[index]
def nvmlDeviceGetCurrentClocksEventReasons(index): return 4 * index
"""

ASKED = """
from contextlib import closing
from autotune.backends.select import select
from autotune.errors import UsageError
for word in ("auto", "cuda:1"):
    with closing(select(word).backend) as backend:
        print(word, backend.device.name, backend.device.arch, backend.device.sm_count, *backend.call("clocks"), backend.call("healthy"))
try:
    select("cuda:2")
except UsageError as error:
    print(error)
"""


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment of a process that sees two GPUs."""
    folder = tmp_path_factory.mktemp("gpus")
    (folder / "pycuda").mkdir()
    (folder / "pycuda" / "__init__.py").write_text('VERSION_TEXT = "2026.1"\n')
    (folder / "pycuda" / "driver.py").write_text(PYCUDA)
    (folder / "pynvml.py").write_text(NVML)
    (folder / "libcuda.c").write_text(LIBCUDA)
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", folder / "libcuda.so.1", folder / "libcuda.c"], check=True)
    path = os.pathsep.join([str(folder), str(Path(__file__).parent.parent), *filter(None, sys.path)])
    return {**os.environ, "PYTHONPATH": path, "LD_LIBRARY_PATH": str(folder)}


def test_doctor_checks_every_gpu_that_the_driver_sees(environment: dict[str, str]) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "autotune", "doctor", "--json"], env=environment, capture_output=True, text=True, timeout=120
    )
    said = {row["what"]: (row["state"], row["said"]) for row in json.loads(done.stdout)}
    assert [name for name in said if name.startswith("GPU ") and ":" not in name] == ["GPU 0", "GPU 1"]
    assert said["GPU 0"][1].startswith("NVIDIA A100: compute capability 8.0, 1024 SMs")
    assert said["GPU 1"][1].startswith("NVIDIA H200: compute capability 9.0, 1025 SMs")
    assert done.returncode == 1
    assert "broken" in {state for name, (state, _) in said.items() if name.startswith("GPU 1: ")}  # the stand-in runs nothing
    if said["GPU 1: nvcc"][0] == "ok":
        assert said["GPU 0: clocks"] == ("ok", "the SM clock is 1410 MHz, held back by: power cap")
        assert said["GPU 1: clocks"] == ("ok", "the SM clock is 1980 MHz")


def test_doctor_counts_the_gpus_even_without_pycuda(environment: dict[str, str], tmp_path: Path) -> None:
    hidden = "import sys; sys.modules['pycuda'] = None; from autotune.cli.doctor import _gpu; print(_gpu())"
    done = subprocess.run([sys.executable, "-c", hidden], env=environment, capture_output=True, text=True, timeout=120)
    assert "the CUDA driver sees 2 GPUs" in done.stdout, done


def test_a_gpu_is_chosen_by_its_number_for_its_context_what_is_compiled_and_its_clocks(environment: dict[str, str]) -> None:
    done = subprocess.run([sys.executable, "-c", ASKED], env=environment, capture_output=True, text=True, timeout=120)
    assert done.stderr == ""
    assert done.stdout.splitlines() == [
        "auto NVIDIA A100 sm_80 1024 1410 power cap  True",
        "cuda:1 NVIDIA H200 sm_90 1025 1980   True",
        "device cuda:2 does not exist, the CUDA driver sees 2 GPUs; use --device emulator or recorded",
    ]
