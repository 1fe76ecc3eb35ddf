"""Launches through the CUDA driver's interface, on a double of the driver: what is packed, loaded, refused and recovered."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.dispatch_cases import SOFTMAX, V3, V4, V10, write_database

DOUBLE = Path(__file__).parent / "driver_double" / "libcuda.c"
CASES = (
    "a_launch_is_packed_as_the_kernel_reads_it",
    "shared_memory_beyond_48_kib_is_asked_for",
    "a_cluster_of_16_blocks_is_asked_for",
    "threads_never_share_a_launch_s_arguments",
    "memory_that_comes_again_has_a_launch_of_its_own",
    "a_ready_launch_that_needs_a_context_gets_that_of_the_array",
    "threads_share_what_is_ready",
    "memory_that_never_comes_again_leaves_nothing_behind",
    "a_launch_that_depends_on_more_than_its_memory_is_never_ready",
    "a_thread_without_a_context_gets_that_of_the_array",
    "a_damaged_binary_is_passed_over_with_one_warning",
    "code_that_the_driver_refuses_is_passed_over",
    "nothing_is_loaded_while_a_stream_is_captured",
    "each_capture_has_a_workspace_of_its_own",
    "a_newer_gpu_than_any_cubin_runs_the_ptx",
    "the_shipped_database_serves_a_machine_without_compilers_and_pycuda",
    "a_sweep_s_database_serves_a_machine_without_compilers_and_an_empty_one_says_what_fills_it",
    "an_array_on_another_gpu_is_computed_there_and_the_current_context_comes_back",
    "a_forked_process_is_told_that_cuda_is_gone",
    "arrays_in_memory_of_the_cpu_are_refused",
    "work_follows_the_stream_that_an_array_comes_from",
    "an_array_without_memory_is_refused",
    "an_array_whose_library_is_unknown_needs_an_output",
    "an_array_of_pycuda_is_recognised_without_importing_it",
    "without_a_gpu_the_error_says_what_to_do",
)


@pytest.fixture(scope="session")
def driver_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("driver")
    subprocess.run(
        ["gcc", "-shared", "-fPIC", "-O2", "-Wall", "-o", folder / "libcuda.so.1", DOUBLE, "-ldl", "-lm", "-lpthread"], check=True
    )
    return folder


@pytest.fixture(scope="session")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_database(
        tmp_path_factory.mktemp("tuned") / "db.sqlite", [(64, 128, V3), (4, 20000, V4), (1, 4096, V10)], stored=[SOFTMAX.safe]
    )


@pytest.mark.parametrize("case", CASES)
def test_on_a_double_of_the_driver(case: str, driver_folder: Path, written: Path, tmp_path: Path) -> None:
    database = shutil.copy(written, tmp_path)
    environment = os.environ | {
        "LD_LIBRARY_PATH": f"{driver_folder}:{os.environ.get('LD_LIBRARY_PATH', '')}",
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
    }
    command = [sys.executable, "-m", "tests.driver_double.cases", case, database]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=Path(__file__).parents[1], timeout=120)
    assert done.returncode == 0, done.stderr


def test_every_case_is_run() -> None:
    text = (DOUBLE.parent / "cases.py").read_text()
    defined = {line.split("(")[0].removeprefix("def ") for line in text.splitlines() if line.startswith("def ") and "(db: str)" in line}
    assert defined == set(CASES)
