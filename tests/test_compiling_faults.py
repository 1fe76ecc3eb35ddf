"""A template that cannot be read, a disk that is full, a compiler that is killed: one sentence that names what to look at."""

from pathlib import Path

import pytest

from autotune import catalogue, source
from autotune.backends import Backend
from autotune.compilers import MachineError
from autotune.configuration import Configuration
from autotune.definition import Version
from autotune.errors import UsageError
from autotune.trial import Failure, Outcome
from autotune.workshop import Workshop
from tests.command import run
from tests.fake import FakeBackend
from tests.small_disk import on_a_small_disk
from tests.test_declared import TEMPLATE, written

ROOT = Path(__file__).resolve().parent.parent


def test_a_template_that_is_not_utf_8_is_named_with_the_byte_and_its_line(tmp_path: Path) -> None:
    template = written(tmp_path) / "v0.cu"
    template.write_bytes(TEMPLATE.encode() + b"// caf\xe9\n")
    with pytest.raises(UsageError) as caught:
        source.read(catalogue.load("twice", tmp_path).version("v0"))
    assert str(caught.value) == f"template {template} is not UTF-8: byte 0xe9 in line {TEMPLATE.count(chr(10)) + 1}; save it as UTF-8"


def test_what_a_template_includes_is_named_too(tmp_path: Path) -> None:
    folder = written(tmp_path)
    (folder / "v0.cu").write_text('#include "mine.cuh"\n')
    (folder / "mine.cuh").write_bytes(b"int a;\n\xff\xfe")
    with pytest.raises(UsageError, match=rf"^template {folder / 'mine.cuh'} is not UTF-8: byte 0xff in line 2; save it as UTF-8$"):
        source.expanded(folder / "v0.cu")


def test_a_byte_order_mark_in_front_makes_no_difference(tmp_path: Path) -> None:
    folder = written(tmp_path)
    (folder / "v0.cu").write_text('#include "mine.cuh"\nint b;\n')
    (folder / "mine.cuh").write_text("int a;\n")
    plain = source.expanded(folder / "v0.cu")
    for name in ("v0.cu", "mine.cuh"):
        (folder / name).write_bytes(b"\xef\xbb\xbf" + (folder / name).read_bytes())
    source.expanded.cache_clear()
    assert source.expanded(folder / "v0.cu") == plain


@pytest.mark.parametrize(
    "line", ['#include "{}"  // why', '#include"{}"', '# /* a */ include "{}" /* b', '\t#include "{}"/* b */', '#include "{}" // a \\']
)
@pytest.mark.parametrize("absolute", [False, True])
def test_an_include_is_put_in_place_however_it_is_written(line: str, absolute: bool, tmp_path: Path) -> None:
    folder = written(tmp_path)
    name = str(folder / "mine.cuh") if absolute else "mine.cuh"
    (folder / "v0.cu").write_text(f"{line.format(name)}\nb */\nint c;\n")
    shas = []
    for text in ("int a;\n", "int other;\n"):
        (folder / "mine.cuh").write_text(text)
        source.expanded.cache_clear()
        expanded = source.expanded(folder / "v0.cu")
        assert f'#line 1 "twice/mine.cuh"\n{text}\n#line 2 "twice/v0.cu"' in expanded
        assert "include" not in expanded
        shas.append(source.identity(expanded))
    assert shas[0] != shas[1]


@pytest.mark.parametrize("around", ["/*\n{}\n*/", "// a \\\n{}\n", 'auto a = R"(\n{}\n)";'])
def test_an_include_that_a_compiler_skips_is_left_where_it_is(around: str, tmp_path: Path) -> None:
    folder = written(tmp_path)
    text = 'int a;  // "\n' + around.format('#include "nowhere.cuh"') + "\n"
    (folder / "v0.cu").write_text(text + '#include "mine.cuh"\n')
    (folder / "mine.cuh").write_text("int b;\n")
    source.expanded.cache_clear()
    expanded = source.expanded(folder / "v0.cu")
    assert text in expanded
    assert "int b;" in expanded


# Less than the source takes, and than what is compiled from it.
@pytest.mark.parametrize(("command", "size"), [("sweep", "4k"), ("verify", "4k"), ("verify", "64k")])
def test_a_full_cache_disk_is_named_and_how_to_name_another(command: str, size: str, tmp_path: Path) -> None:
    kernels, cache = written(tmp_path).parent, tmp_path / "cache"
    cache.mkdir()
    stored = f'--db "{tmp_path / "x.sqlite"}"' if command == "sweep" else ""
    script = f'AUTOTUNE_CACHE="{cache}" "$PYTHON" -m autotune {command} twice --kernels "{kernels}" --device emulator --size 4x64 {stored}'
    done = on_a_small_disk(cache, size, script, cwd=ROOT)
    said = done.stderr.splitlines()[-1]
    assert said.startswith(f"autotune: there is no room in the cache folder {cache} to compile in ("), done.stdout + done.stderr
    assert said.endswith("make room there, or name another folder by AUTOTUNE_CACHE, and run again")
    assert done.returncode == 1


def test_a_full_temporary_folder_of_nvcc_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    twice = catalogue.load("twice", written(tmp_path).parent)

    class Full(FakeBackend):
        def compile(self, version: Version, configurations: object, dtype: str):  # type: ignore[no-untyped-def]
            failure = Failure(Outcome.COMPILE_ERROR, "fatal error: error writing to kernels.s: No space left on device")
            return iter([(Configuration.of("v0", block=32), failure)])

    backend: Backend = Full(lambda configuration, problem: 1.0)
    with pytest.raises(MachineError, match=rf"; make room in {tmp_path}, or name another folder by TMPDIR, and run again$"):
        Workshop(backend, twice).build(twice.configurations(), "float32")


def test_a_compiler_that_is_killed_before_anything_is_checked_is_told_with_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from autotune.backends.emulation import build

    stand = tmp_path / "cxx"
    stand.write_text('#!/bin/sh\ncase "$*" in *-Wextra*-c*) kill -9 $$;; esac\nexec g++ "$@"\n')
    stand.chmod(0o755)
    monkeypatch.setenv("CXX", str(stand))
    monkeypatch.setenv("AUTOTUNE_CACHE", str(tmp_path / "cache"))
    for known in (build.compiler, build.compiler_version):
        known.cache_clear()
    try:
        status, _, err = run("verify", "twice", "--kernels", str(written(tmp_path).parent), "--device", "emulator", "--size", "4x64")
    finally:
        monkeypatch.undo()
        for known in (build.compiler, build.compiler_version):
            known.cache_clear()
    said = err.splitlines()[-1]
    assert status == 2
    assert said.startswith("autotune: the library that runs kernels in the emulator could not be compiled (")
    assert said.endswith(f"see that {stand} is of C++17 and has memory, or name another compiler by CXX, and run again")
