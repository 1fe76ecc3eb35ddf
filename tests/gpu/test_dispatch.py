"""The dispatcher on a real GPU, in every library that is installed: results, streams, captured graphs, gradients, refusals, no compiler."""

import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from autotune import catalogue, source
from autotune.backends.cuda import CudaBackend
from autotune.configuration import Configuration
from autotune.database import Database, Settled
from autotune.dispatch import Dispatcher
from autotune.errors import KernelError, UsageError
from autotune.problem import Problem
from autotune.trial import Instance, Outcome, Round

pytestmark = pytest.mark.gpu

SOFTMAX = catalogue.load("softmax")
V3 = Configuration.of("v3", block=256, vector=4, unroll=1)
V4 = Configuration.of("v4", block=512, vector=4, unroll=1, stash="inputs")
V10 = Configuration.of("v10", block=256, items=4, vector=4, hold="exponentials", edges="exact")  # needs a workspace
TUNED = ((64, 1024, V3), (8, 20000, V4), (1, 65536, V10))
SHAPES = ((64, 1024), (8, 20000), (4, 7, 33), (5,), (3, 1), (2, 50257))


@pytest.fixture(scope="module")
def database(backend: CudaBackend, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Cubins of some configurations and the sizes tuned with them, as a sweep leaves them."""
    path = tmp_path_factory.mktemp("dispatch") / "tuned.sqlite"
    with Database(path, create=True) as db:
        run = db.begin_run(backend.device, backend.environment, backend.timing)
        instances = {}
        for configuration in (SOFTMAX.safe, *(configuration for _, _, configuration in TUNED)):
            version = SOFTMAX.version(configuration.version)
            db.add_template("softmax", version.name, source.read(version))
            ((_, instance),) = backend.compile(version, [configuration], "float32")
            assert isinstance(instance, Instance)
            db.store_binary(instance)
            instances[configuration] = instance
        for rows, cols, configuration in TUNED:
            problem = Problem("softmax", rows, cols)
            instance = instances[configuration]
            taken = Round("final", (10.0,), 1)
            trial = db.record(run, problem, configuration, instance.template_sha, Outcome.OK, instance=instance, rounds=[taken])
            settled = Settled(configuration, trial, 10.0, 10.0, 10.0, 0.0, 1, SOFTMAX.bytes_moved(problem), "confirmed")
            db.settle(run, backend.device, backend.timing, problem, settled)
        db.end_run(run, "done")
    return path


@pytest.fixture
def softmax(database: Path) -> Dispatcher:
    return Dispatcher("softmax", db=database)


@pytest.fixture
def torch() -> Any:
    return pytest.importorskip("torch")


def close(torch: Any, y: Any, x: Any) -> bool:
    return bool(torch.allclose(y.double(), torch.softmax(x.double(), -1), rtol=1e-5, atol=1e-37))


@pytest.mark.parametrize("shape", SHAPES)
def test_torch_tensors_in_torch_tensors_out(softmax: Dispatcher, torch: Any, shape: tuple[int, ...]) -> None:
    x = torch.randn(shape, device="cuda")
    y = softmax(x)
    assert type(y) is torch.Tensor
    assert close(torch, y, x)
    out = torch.empty_like(x)
    assert softmax(x, out=out) is out
    assert torch.equal(out, y)
    assert softmax(x, out=x) is x
    assert torch.equal(x, y)


def test_the_tuned_sizes_run_what_was_tuned(softmax: Dispatcher, torch: Any) -> None:
    for rows, cols, _ in TUNED:
        softmax(torch.randn(rows, cols, device="cuda"))
    assert softmax.stats().hits == {"exact": len(TUNED)}


@pytest.mark.parametrize("offset", range(4))
def test_misaligned_and_strided_views(softmax: Dispatcher, torch: Any, offset: int) -> None:
    x = torch.randn(64, 1100, device="cuda")[:, offset : offset + 1024]
    out = torch.full((64, 1200), 7.0, device="cuda")
    softmax(x, out=out[:, 8:1032])
    assert close(torch, out[:, 8:1032], x)
    assert bool((out[:, :8] == 7).all())
    assert bool((out[:, 1032:] == 7).all())


def test_the_current_stream_is_respected(softmax: Dispatcher, torch: Any) -> None:
    side = torch.cuda.Stream()
    x = torch.zeros(64, 1024, device="cuda")
    softmax(x)
    torch.cuda.synchronize()
    with torch.cuda.stream(side):
        torch.cuda._sleep(200_000_000)  # a tenth of a second: a launch on another stream would read the zeros
        x.copy_(torch.randn(64, 1024, device="cuda"))
        y = softmax(x)
    side.synchronize()
    assert close(torch, y, x)
    z = softmax(x, stream=side)
    side.synchronize()
    assert torch.equal(y, z)


def test_a_captured_graph_replays_the_launch(softmax: Dispatcher, torch: Any) -> None:
    x, out = torch.randn(64, 1024, device="cuda"), torch.empty(64, 1024, device="cuda")
    softmax.warm([(64, 1024)])
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        softmax(x, out=out)
        made = softmax(x)
    x.copy_(torch.randn(64, 1024, device="cuda"))
    graph.replay()
    torch.cuda.synchronize()
    assert close(torch, out, x)
    assert close(torch, made, x)


def test_memory_that_comes_again_is_launched_right_on_every_stream_in_a_graph_and_by_threads(softmax: Dispatcher, torch: Any) -> None:
    x, out, streams = torch.randn(64, 1024, device="cuda"), torch.empty(64, 1024, device="cuda"), [torch.cuda.Stream() for _ in range(2)]
    torch.cuda.synchronize()
    for step in range(12):
        stream = streams[step // 2 % 2]
        with torch.cuda.stream(stream):
            x.normal_()
            softmax(x, out.zero_())
            assert close(torch, out, x)
            made = x.clone()
            softmax(made, made)
            assert torch.equal(made, out)
        stream.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=streams[0]):
        for _ in range(3):
            softmax(x, out)
    x.normal_()
    out.zero_()
    torch.cuda.synchronize()
    graph.replay()
    torch.cuda.synchronize()
    assert close(torch, out, x)
    failed: list[object] = []

    def work() -> None:
        try:
            with torch.cuda.stream(torch.cuda.Stream()):
                own, into = torch.randn(64, 1024, device="cuda"), torch.empty(64, 1024, device="cuda")
                failed.extend("wrong" for _ in range(200) if not close(torch, softmax(own.normal_(), into.zero_()), own))
                torch.cuda.current_stream().synchronize()
        except Exception as error:
            failed.append(error)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []


def test_nothing_is_loaded_while_capturing(softmax: Dispatcher, torch: Any) -> None:
    x, out = torch.randn(64, 1024, device="cuda"), torch.empty(64, 1024, device="cuda")
    softmax.warm([(3, 5)])
    loads = softmax.stats().loads
    with torch.cuda.graph(torch.cuda.CUDAGraph()):
        softmax(x, out=out)  # the safe kernel, the only one that is loaded
    assert softmax.stats().loads == loads
    fresh = Dispatcher("softmax", db=softmax._db)
    stream = torch.cuda.Stream()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.stream(stream):
        graph.capture_begin()
        with pytest.raises(KernelError, match=r"call warm\(\[\(64, 1024\)\]\) before"):
            fresh(x, out=out)
        out.copy_(x)
        graph.capture_end()


def test_graphs_captured_on_one_stream_are_replayed_beside_each_other(softmax: Dispatcher, torch: Any) -> None:
    stream = torch.cuda.Stream()
    graphs, pairs = [], [(torch.randn(1, 65536, device="cuda"), torch.empty(1, 65536, device="cuda")) for _ in range(2)]
    torch.cuda.synchronize()
    for x, out in pairs:
        with torch.cuda.stream(stream):
            softmax(x, out=out)
        stream.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            for _ in range(50):
                softmax(x, out=out)
        graphs.append(graph)
        out.fill_(7)
    assert softmax.stats().hits == {"exact": 102}
    torch.cuda.synchronize()
    sides = [torch.cuda.Stream() for _ in graphs]
    for _ in range(10):
        for graph, side in zip(graphs, sides, strict=True):
            with torch.cuda.stream(side):
                graph.replay()
    torch.cuda.synchronize()
    assert all(close(torch, out, x) for x, out in pairs)
    made = softmax._planner(torch.cuda.current_device()).launcher.workspaces._made  # type: ignore[attr-defined]
    assert len({address for address, _ in made.values()}) == 3  # one of the stream and one of each capture


def test_a_gradient_flows(softmax: Dispatcher, torch: Any) -> None:
    x = torch.randn(64, 1024, device="cuda", requires_grad=True)
    weight = torch.randn(64, 1024, device="cuda")
    (softmax(x) * weight).sum().backward()
    reference = x.detach().double().requires_grad_()
    (torch.softmax(reference, -1) * weight).sum().backward()
    assert torch.allclose(x.grad.double(), reference.grad, rtol=1e-3, atol=1e-7)
    with torch.no_grad():
        assert not softmax(x).requires_grad
    with pytest.raises(UsageError, match="out= cannot be combined with a gradient"):
        softmax(x, out=torch.empty_like(x))


def test_torch_compile_traces_through_without_a_break(database: Path, torch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    script = """
import torch, autotune
def f(x):
    return autotune.softmax(x * 2) + 1
x = torch.randn(64, 1024, device="cuda")
y = torch.compile(f, fullgraph=True)(x)
assert torch.allclose(y, torch.softmax(x * 2, -1) + 1, rtol=1e-5, atol=1e-6)
z = torch.compile(f, fullgraph=True, mode="reduce-overhead")
for _ in range(4):
    y = z(x)
assert torch.allclose(y, torch.softmax(x * 2, -1) + 1, rtol=1e-5, atol=1e-6)
"""
    assert complaint_of(script, AUTOTUNE_DB=str(database)) == ""


def test_torch_compile_traces_through_any_dispatcher(database: Path, torch: Any) -> None:
    script = """
import sys, torch
from autotune import Dispatcher
one, two = Dispatcher("softmax", db=sys.argv[1]), Dispatcher("softmax", db=sys.argv[1])
def f(x, out):
    one(x, out=out)
    return two(x * 2) + out
x, out = torch.randn(64, 1024, device="cuda"), torch.empty(64, 1024, device="cuda")
y = torch.compile(f, fullgraph=True)(x, out)
assert torch.allclose(y, torch.softmax(x * 2, -1) + torch.softmax(x, -1), rtol=1e-5, atol=1e-6)
assert one.stats().hits == two.stats().hits == {"exact": 1}
x.requires_grad_()
g = torch.compile(lambda x: one(x).square().sum(), fullgraph=True)
g(x).backward()
reference = x.detach().double().requires_grad_()
torch.softmax(reference, -1).square().sum().backward()
assert torch.allclose(x.grad.double(), reference.grad, rtol=1e-3, atol=1e-8)
"""
    assert complaint_of(script, str(database)) == ""


def test_threads_share_a_dispatcher(softmax: Dispatcher, torch: Any) -> None:
    failed: list[object] = []

    def work(seed: int) -> None:
        try:
            generator = torch.Generator("cuda").manual_seed(seed)
            for step in range(100):
                x = torch.randn(64, 1024 + 4 * (step % 5), device="cuda", generator=generator)
                if not close(torch, softmax(x), x):
                    failed.append(x.shape)
        except Exception as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []


def test_refusals_name_what_came_and_what_is_accepted(softmax: Dispatcher, torch: Any) -> None:
    on_gpu = torch.randn(8, 64, device="cuda")
    with pytest.raises(UsageError, match="the CPU tensor is in memory of the CPU; a GPU takes arrays in its own memory"):
        softmax(torch.randn(8, 64))
    with pytest.raises(UsageError, match="the torch tensor holds float64; softmax takes float32"):
        softmax(on_gpu.double())
    with pytest.raises(UsageError, match="last axis must be contiguous"):
        softmax(on_gpu.T)
    with pytest.raises(UsageError, match="overlaps the input in part"):
        softmax(on_gpu[:7], out=on_gpu[1:])
    with pytest.raises(UsageError, match="has no axis"):
        softmax(on_gpu[0, 0])
    assert softmax(on_gpu[:0]).shape == (0, 64)


@pytest.mark.parametrize("context", ["autoinit", "autoprimaryctx"])
def test_pycuda_arrays_in_either_kind_of_context(database: Path, context: str) -> None:
    script = f"""
import numpy as np, pycuda.{context}
import pycuda.driver as cuda, pycuda.gpuarray as gpuarray
import autotune
host = np.random.default_rng(0).normal(size=(4, 16, 1024)).astype(np.float32)
e = np.exp(host.astype(np.float64)); e /= e.sum(-1, keepdims=True)
x = gpuarray.to_gpu(host)
y = autotune.softmax(x)
assert type(y) is gpuarray.GPUArray and np.allclose(y.get(), e, rtol=1e-5), abs(y.get() - e).max()
stream = cuda.Stream()
z = gpuarray.empty_like(x)
autotune.softmax(x, out=z, stream=stream)
stream.synchronize()
assert (z.get() == y.get()).all()
autotune.softmax(x, out=x)
assert (x.get() == y.get()).all()
"""
    assert complaint_of(script, AUTOTUNE_DB=str(database)) == ""


def test_cupy_arrays_on_the_current_stream(softmax: Dispatcher) -> None:
    cupy = pytest.importorskip("cupy")
    x = cupy.random.standard_normal((64, 1024), dtype=cupy.float32)
    with cupy.cuda.Stream(non_blocking=True) as stream:
        y = softmax(x)
        stream.synchronize()
    assert type(y) is cupy.ndarray
    e = cupy.exp(x.astype(cupy.float64))
    assert cupy.allclose(y, e / e.sum(-1, keepdims=True), rtol=1e-5)


def test_numba_arrays(softmax: Dispatcher) -> None:
    cuda = pytest.importorskip("numba.cuda")
    host = np.random.default_rng(0).normal(size=(64, 1024)).astype(np.float32)
    y = softmax(cuda.to_device(host))
    e = np.exp(host.astype(np.float64))
    assert np.allclose(y.copy_to_host(), e / e.sum(-1, keepdims=True), rtol=1e-5)


@pytest.mark.parametrize("shipped", [False, True])
def test_without_nvcc_g_plus_plus_and_pycuda_it_dispatches(backend: CudaBackend, database: Path, tmp_path: Path, shipped: bool) -> None:
    if shipped and backend.device.compute_capability != (9, 0):
        pytest.skip(f"no kernels are shipped for {backend.device.name}")
    script = """
import shutil, sys
sys.modules["pycuda"] = None
assert not any(map(shutil.which, ("nvcc", "g++", "gcc", "cc")))
import numpy as np
from cuda.bindings import driver
from autotune.dispatch import Dispatcher
softmax = Dispatcher("softmax")
softmax._cuda.ordinal()
class OnGpu:
    def __init__(self, host):
        _, self.pointer = driver.cuMemAlloc(host.nbytes)
        driver.cuMemcpyHtoD(self.pointer, host.ctypes.data, host.nbytes)
        self.__cuda_array_interface__ = dict(shape=host.shape, typestr="<f4", data=(int(self.pointer), False), version=3)
for shape in ((64, 1024), (4, 7, 1023)):
    host = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    x, y = OnGpu(host), OnGpu(np.zeros_like(host))
    softmax(x, out=y)
    back = np.empty_like(host)
    driver.cuMemcpyDtoH(back.ctypes.data, y.pointer, host.nbytes)
    e = np.exp(host.astype(np.float64)); e /= e.sum(-1, keepdims=True)
    assert np.allclose(back, e, rtol=1e-5)
print(softmax.stats())
assert softmax.stats().loads > 0
"""
    assert complaint_of(script, AUTOTUNE_DB=str(tmp_path / "none.sqlite" if shipped else database), PATH="/nonexistent") == ""


def test_after_a_fork_the_error_is_clear(database: Path) -> None:
    pytest.importorskip("torch")
    script = """
import os, torch, autotune
from autotune.errors import KernelError
x = torch.randn(64, 1024, device="cuda")
autotune.softmax(x)
if os.fork() == 0:
    try:
        autotune.softmax(x, out=x)
    except KernelError as error:
        os._exit(0 if "forked" in str(error) else 3)
    os._exit(4)
assert os.waitstatus_to_exitcode(os.wait()[1]) == 0
"""
    assert complaint_of(script, AUTOTUNE_DB=str(database)) == ""


def complaint_of(script: str, *arguments: str, **environment: str) -> str:
    """What a Python process of its own says when `script` fails; "" when every one of its assertions held."""
    paths = os.pathsep.join(filter(None, [str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")]))
    done = subprocess.run(
        [sys.executable, "-c", script, *arguments],
        capture_output=True,
        text=True,
        env={name: value for name, value in os.environ.items() if name != "PYTHONOPTIMIZE"} | {"PYTHONPATH": paths} | environment,
        timeout=300,
    )
    return "" if done.returncode == 0 else done.stderr or f"exit status {done.returncode}"
