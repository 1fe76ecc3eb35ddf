"""The compiler of NVIDIA: finding it, what it targets, what it says of an instance; and every instance of v0-v4 for sm_80 and sm_90."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from autotune import catalogue, nvcc, source
from autotune.configuration import Configuration
from autotune.errors import CompileError, UsageError
from autotune.trial import Failure, Instance, Outcome, Resources

SOFTMAX = catalogue.load("softmax")
needs_nvcc = pytest.mark.nvcc


@pytest.mark.parametrize(
    ("name", "arch"),
    [
        ("sm_75", (7, 5, "")),
        ("sm_90", (9, 0, "")),
        ("sm_90a", (9, 0, "a")),
        ("sm_100", (10, 0, "")),
        ("sm_103", (10, 3, "")),
        ("sm_103f", (10, 3, "f")),
        ("sm_120", (12, 0, "")),
        ("sm_121a", (12, 1, "a")),
    ],
)
def test_the_last_digit_of_an_architecture_is_its_minor_number(name: str, arch: tuple[int, int, str]) -> None:
    assert nvcc.parse_arch(name) == arch
    assert str(nvcc.parse_arch(name)) == name


@pytest.mark.parametrize("name", ["", "sm_9", "sm_090", "90", "compute_9", "sm_90b", "sm_1234", "sm_90 "])
def test_anything_else_is_no_architecture(name: str) -> None:
    with pytest.raises(UsageError, match="is not like sm_90, sm_90a or sm_120"):
        nvcc.parse_arch(name)


def test_no_nvcc_is_one_sentence(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("sysconfig.get_path", lambda name: str(tmp_path))
    monkeypatch.delenv("CUDA_HOME", raising=False)
    with pytest.raises(UsageError, match=r"nvcc is neither on PATH nor in \$CUDA_HOME/bin; install the CUDA toolkit"):
        nvcc.find()


def test_nvcc_is_found_in_cuda_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    program = tmp_path / "bin" / "nvcc"
    program.parent.mkdir()
    program.touch(mode=0o755)
    assert nvcc.find() == str(program)


def test_nvcc_is_found_in_nvidias_wheels(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    monkeypatch.delenv("CUDA_HOME", raising=False)
    monkeypatch.setattr("sysconfig.get_path", lambda name: str(tmp_path))
    program = tmp_path / "nvidia" / "cu13" / "bin" / "nvcc"
    program.parent.mkdir(parents=True)
    program.touch(mode=0o755)
    assert nvcc.find() == str(program)


def _nvcc(folder: Path, version: str, targets: str) -> str:
    """A program that answers the two questions that a compiler is asked before it compiles."""
    program = folder / "nvcc"
    program.write_text(f'#!/bin/sh\ncase "$1" in\n--version) echo "{version}";;\n--list-gpu-code) printf "{targets}";;\nesac\n')
    program.chmod(0o755)
    return str(program)


def test_a_gpu_that_nvcc_cannot_build_for_is_one_sentence(tmp_path: Path) -> None:
    old = _nvcc(tmp_path, "Cuda compilation tools, release 12.4, V12.4.131", "sm_80\\nsm_90\\nsm_90a\\n")
    assert nvcc.version(old) == "nvcc 12.4.131"
    nvcc.require(old, "sm_90")
    nvcc.require(old, "sm_90a")
    with pytest.raises(UsageError) as raised:
        nvcc.require(old, "sm_120")
    assert str(raised.value) == ("nvcc 12.4.131 cannot build for sm_120, only for sm_80, sm_90, sm_90a; install a CUDA toolkit made for it")


def test_another_program_called_nvcc_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is not NVIDIA's nvcc"):
        nvcc.version(_nvcc(tmp_path, "hello", ""))


def test_a_broken_nvcc_is_one_sentence(tmp_path: Path) -> None:
    broken = tmp_path / "nvcc"
    broken.write_text("not a program")
    broken.chmod(0o755)
    with pytest.raises(UsageError, match="could not be run"):
        nvcc.version(str(broken))


def test_resources_are_read_from_what_ptxas_says() -> None:
    log = """ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'first_kernel' for 'sm_90'
ptxas info    : Function properties for first_kernel
    64 bytes stack frame, 8 bytes spill stores, 12 bytes spill loads
ptxas info    : Used 48 registers, used 1 barriers, 64 bytes cumulative stack size, 256 bytes smem, 400 bytes cmem[0]
ptxas info    : Compiling entry function 'second' for 'sm_90'
ptxas info    : Function properties for second
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 21 registers, used 0 barriers
"""
    assert nvcc.resources(log) == {"first_kernel": Resources(48, 8, 64, 256), "second": Resources(21, 0, 0, 0)}
    assert nvcc.resources("nothing of the kind") == {}


def test_the_first_error_is_the_complaint() -> None:
    log = 'a.cu(3): warning #177-D: unused\n\na.cu(9): error: identifier "x" is undefined\n1 error detected in the compilation\n'
    assert nvcc.complaint(log) == 'a.cu(9): error: identifier "x" is undefined'
    assert nvcc.complaint("killed\n") == "killed"
    assert nvcc.complaint("") == "nvcc failed and said nothing"


@needs_nvcc
def test_a_failing_instance_fails_alone_and_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    version = SOFTMAX.version("v1")
    good, bad = Configuration.of("v1", block=64, unroll=1), Configuration.of("v1", block=96, unroll=1)
    fates = dict(nvcc.compile_instances(version, [good, bad], "float32", "sm_90", jobs=1))
    assert isinstance(fates[good], Instance)
    failure = fates[bad]
    assert isinstance(failure, Failure)
    assert failure.outcome is Outcome.COMPILE_ERROR
    assert "halving loses values unless the block is a power of two" in failure.message
    assert list(tmp_path.iterdir()) == []


@needs_nvcc
@pytest.mark.parametrize("version", ["v2", "v3", "v4"])
def test_a_block_that_is_no_whole_number_of_warps_does_not_compile(version: str) -> None:
    parameters = dict(SOFTMAX.version(version).configurations()[0].parameters) | {"block": 48}
    with pytest.raises(CompileError, match="a shuffle needs all lanes of its warp"):
        nvcc.compile_cubin(source.render(SOFTMAX.version(version), [Configuration.of(version, **parameters)], "float32"), "sm_90")


@needs_nvcc
@pytest.mark.parametrize("arch", ["sm_90", "sm_80"])
@pytest.mark.parametrize("name", ["v0", "v1", "v2", "v3", "v4"])
def test_every_instance_compiles_without_spills_and_with_the_shared_memory_it_declares(
    name: str, arch: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nvcc, "INSTANCES_PER_UNIT", 30)  # the other core has its own tests
    version = SOFTMAX.version(name)
    fates = dict(nvcc.compile_instances(version, version.configurations(), "float32", arch, jobs=1))
    assert set(fates) == set(version.configurations())
    assert not [str(fate) for fate in fates.values() if isinstance(fate, Failure)]
    for configuration, instance in fates.items():
        assert isinstance(instance, Instance), configuration
        takes = instance.resources
        assert takes is not None, configuration
        assert (takes.spill_bytes, takes.local_bytes) == (0, 0), configuration
        assert takes.static_shared_bytes == _static_shared_bytes(name, configuration.integer("block")), configuration
        assert 0 < takes.registers * configuration.integer("block") <= 65536, configuration
        assert instance.binary.startswith(b"\x7fELF")
        assert instance.symbol.encode() in instance.binary
        assert (instance.arch, instance.flags, instance.compiler) == (arch, " ".join(nvcc.FLAGS), nvcc.version(nvcc.find()))


def _static_shared_bytes(version: str, block: int) -> int:
    """Two arrays of floats, for the maximum and for the sum: one each per thread in v1, per warp in the versions that shuffle."""
    used = {"v0": 0, "v1": 2 * 4 * block}.get(version, 2 * 4 * (block // 32 if block > 32 else 0))
    return -(-used // 16) * 16 if version == "v4" else used  # v4's dynamic shared memory follows, aligned to 16 bytes


def _ptx(version: str, dtype: str = "float32", **parameters: int | str) -> str:
    chosen = Configuration.of(version, **parameters)
    return nvcc.compile_ptx(source.render(SOFTMAX.version(version), [chosen], dtype), "sm_90")


def _count(instruction: str, ptx: str) -> int:
    return len(re.findall(rf"\b{re.escape(instruction)}\b", ptx))


@needs_nvcc
@pytest.mark.parametrize(
    ("version", "parameters", "loads"),
    [
        ("v3", {}, 3),
        ("v4", {"stash": "exponentials"}, 2),
        ("v4", {"stash": "inputs"}, 1),
    ],
)
def test_vectors_are_used_in_every_pass_and_v4_reads_the_input_less_often(version: str, parameters: dict[str, Any], loads: int) -> None:
    """Each pass has a loop of whole batches of two and a part of one, so each read of the input is four instructions."""
    ptx = _ptx(version, block=256, vector=4, unroll=2, **parameters)
    assert _count("ld.global.v4.f32", ptx) == 4 * loads
    assert _count("st.global.v4.f32", ptx) == 4
    assert _count("ld.global.f32", ptx) == 1  # the tail, read once and kept
    assert _count("ld.shared.v4.f32", ptx) == {3: 0, 2: 4, 1: 8}[loads]


@needs_nvcc
@pytest.mark.parametrize("unroll", [2, 4])
def test_a_batch_has_as_many_loads_as_its_unroll_says(unroll: int) -> None:
    assert _count("ld.global.f32", _ptx("v2", block=256, unroll=unroll)) == 3 * 2 * unroll


@needs_nvcc
def test_each_reduction_by_shuffles_takes_one_barrier() -> None:
    assert _count("bar.sync", _ptx("v2", block=256, unroll=1)) + _count("barrier.sync", _ptx("v2", block=256, unroll=1)) == 2
    assert "bar" not in re.findall(r"\bbar(?:rier)?\b", _ptx("v2", block=32, unroll=1))


@needs_nvcc
def test_dynamic_shared_memory_is_aligned_for_vectors() -> None:
    assert re.search(r"\.extern \.shared \.align 16 \.b8 \w+\[\]", _ptx("v4", block=64, vector=4, unroll=1, stash="inputs"))


@needs_nvcc
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_sixteen_bit_instances_compile_with_16_byte_accesses(dtype: str) -> None:
    ptx = _ptx("v3", dtype, block=64, vector=8, unroll=2)
    assert _count("st.global.v4.b32", ptx) + _count("st.global.v4.u32", ptx) == 4


def test_without_nvcc_the_summary_says_what_was_deselected(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", __file__, "-p", "no:cacheprovider", "-k", "barrier or minor"],
        env={"PATH": str(tmp_path), "HOME": str(tmp_path)},
        cwd=Path(__file__).parent.parent,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout
    assert "Every test that compiles with nvcc was deselected: nvcc is neither on PATH nor in $CUDA_HOME/bin" in done.stdout
    assert re.search(r"^8 passed, \d+ deselected", done.stdout, re.MULTILINE)
