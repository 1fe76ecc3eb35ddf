"""Builds instances with PyCUDA's compile path (that of SourceModule), many at a time, and keeps them in the cubin store."""

import os
import re
import shutil
import threading
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from autotune import compilers, cubins, nvcc, source
from autotune.backends.cuda_kernel import pycuda_driver
from autotune.catalogue import shipped
from autotune.configuration import Configuration
from autotune.definition import Version
from autotune.element import element
from autotune.errors import CompileError
from autotune.operation import Operation
from autotune.trial import Failure, Instance, Outcome, Resources

BITS = {1: "unsigned char", 2: "unsigned short", 4: "unsigned int", 8: "unsigned long long"}

Result = tuple[Configuration, Instance | Failure]


class Compiler:
    """Builds for one architecture with up to `jobs` compilers at once.

    Raises UsageError when nvcc is missing or cannot build for `arch`, or PyCUDA is missing.
    """

    def __init__(self, arch: str, jobs: int, store: cubins.Cubins | None = None) -> None:
        self._driver = pycuda_driver()
        self._nvcc = nvcc.find()
        self.version = nvcc.version(self._nvcc)
        nvcc.require(self._nvcc, arch)
        self._arch = arch
        self._jobs = jobs
        self._store = store or cubins.Cubins()
        self._flags = " ".join(nvcc.FLAGS)

    def build(self, version: Version, configurations: Iterable[Configuration], dtype: str) -> Iterator[Result]:
        """Each configuration's instance, or why it has none: first those of the store, then each unit as it is done."""
        missing = []
        for configuration in configurations:
            kept = self._store.get(self._key(version, configuration, dtype))
            if kept:
                yield configuration, self._instance(version, configuration, dtype, *kept)
            else:
                missing.append(configuration)
        if not missing:
            return
        with _ptxas_heard(), _nvcc_bounded():
            yield from compilers.in_parallel(lambda unit: self._unit(version, unit, dtype), self._units(missing), self._jobs)

    def support(self, dtype: str, operation: Operation | None) -> bytes:
        """The cubin of our own kernels for `dtype`, with the operation's reference kernel when it has one. Raises CompileError."""
        text = support_source(dtype, operation)
        name = cubins.key(text, self._flags, self._arch, self.version)
        kept = self._store.get(name)
        if kept:
            return kept[0]
        with _ptxas_heard(), _nvcc_bounded():
            binary = self._compile(text)
        self._store.put(binary, {name: None})
        return binary

    def _units(self, missing: Sequence[Configuration]) -> list[Sequence[Configuration]]:
        size = max(1, min(nvcc.INSTANCES_PER_UNIT, -(-len(missing) // self._jobs)))
        return [missing[i : i + size] for i in range(0, len(missing), size)]

    def _unit(self, version: Version, unit: Sequence[Configuration], dtype: str) -> list[Result]:
        """The instances of one translation unit; when it does not compile, of one each, so that only the guilty ones fail."""
        try:
            binary = self._compile(source.render(version, unit, dtype))
        except CompileError as error:
            if len(unit) > 1:
                return [result for one in unit for result in self._unit(version, [one], dtype)]
            return [(unit[0], Failure(Outcome.COMPILE_ERROR, str(error)))]
        said = nvcc.resources(_said())
        found = {c: said.get(source.symbol(version, c, dtype)) for c in unit}
        self._store.put(binary, {self._key(version, c, dtype): r for c, r in found.items()})
        return [(c, self._instance(version, c, dtype, binary, r)) for c, r in found.items()]

    def _compile(self, text: str) -> bytes:
        from pycuda import compiler

        _heard.text = ""
        try:
            # PyCUDA's own cache is off: it is not written atomically, and it starts nvcc's preprocessor even on a hit.
            binary = compiler.compile(
                text, nvcc=self._nvcc, options=list(nvcc.FLAGS), no_extern_c=True, arch=self._arch, cache_dir=False, target="cubin"
            )
        except self._driver.CompileError as error:
            _remove_leftovers(error)
            raise CompileError(nvcc.complaint(f"{error.stderr or ''}\n{error.stdout or ''}")) from None
        return bytes(binary)

    def _key(self, version: Version, configuration: Configuration, dtype: str) -> str:
        return cubins.key(source.render(version, [configuration], dtype), self._flags, self._arch, self.version)

    def _instance(self, version: Version, configuration: Configuration, dtype: str, binary: bytes, resources: Resources | None) -> Instance:
        return Instance(
            configuration=configuration,
            dtype=dtype,
            arch=self._arch,
            symbol=source.symbol(version, configuration, dtype),
            template_sha=source.read(version).sha,
            flags=self._flags,
            compiler=self.version,
            binary=binary,
            resources=resources,
        )


def support_source(dtype: str, operation: Operation | None) -> str:
    """The CUDA source of our own kernels for `dtype`, with the operation's reference kernel when it has one."""
    kind = element(dtype)
    lines = [f"#include <{kind.header}>"] if kind.header else []
    lines += [f"#define ELEMENT {kind.cuda}", f"#define BITS {BITS[kind.bytes]}"]
    lines += [source.expanded(shipped("templates") / "autotune" / name) for name in ("fill.cu", "compare.cu", "flush.cu", "copy.cu")]
    if operation and operation.reference_template:
        lines.append(source.expanded(operation.reference_template))
    return "\n".join(lines) + "\n"


_heard = threading.local()


def _said() -> str:
    """What the compiler said in this thread since it was last started."""
    return getattr(_heard, "text", "")


@contextmanager
def _ptxas_heard() -> Iterator[None]:
    """Keeps, per thread, what PyCUDA passes on of nvcc's output, which it does as a warning."""
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        shown = warnings.showwarning

        def hear(message: Warning | str, category: type[Warning], *where: Any, **more: Any) -> None:
            if "The CUDA compiler succeeded" in str(message):
                _heard.text = str(message)
            else:
                shown(message, category, *where, **more)

        warnings.showwarning = hear
        yield


@contextmanager
def _nvcc_bounded() -> Iterator[None]:
    """Has PyCUDA start nvcc through `compilers.run`: by itself it waits for ever, and leaves nvcc running when this process is killed."""
    from pytools import prefork

    class Bounded(prefork.DirectForker):  # type: ignore[misc]
        def call_capture_output(self, cmdline: Sequence[str], cwd: str, error_on_nonzero: bool = True) -> compilers.Done:
            folder = Path(cwd)
            try:
                return compilers.run(cmdline, folder=folder, cwd=folder, env={**os.environ, "TMPDIR": cwd})
            except BaseException:
                shutil.rmtree(folder, ignore_errors=True)
                raise

    before, prefork.forker = prefork.forker, Bounded()
    try:
        yield
    finally:
        prefork.forker = before


def _remove_leftovers(error: Any) -> None:
    """Remove the folder that PyCUDA leaves behind when a compilation fails."""
    match = re.search(r"nvcc compilation of (.+)[/\\]kernel\.cu failed", str(error.msg))
    if match:
        shutil.rmtree(Path(match[1]), ignore_errors=True)
