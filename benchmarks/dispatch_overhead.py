"""Host time per call, in microseconds: ours, the bare launch that it makes, PyCUDA's own launches, and other libraries' softmax.

    python benchmarks/dispatch_overhead.py --seconds 60 --json overhead.json

Needs a GPU, torch, and a database with a kernel for the size. Everything runs on one small matrix, so that the GPU is always ahead of
the host. Contestants take turns, and each figure is the median of its rounds. What is not installed, or not ready in time, is left out and
named; other libraries that compile or load much come last, in turns of their own, when the rest is written already. The bare launch is in
both, and what a call costs beyond it is told by that of the same turns: a host's speed changes within a run. The bar is torch's softmax
with `out=` in the same run, and the bare launch plus 1.5 us. The yardstick is a fixed piece of Python, for comparing hosts.
"""

import faulthandler
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from itertools import cycle
from pathlib import Path
from typing import Any

import click

sys.path.insert(1, str(Path(__file__).resolve().parents[1]))

from benchmarks.starting import require, require_gpu, started

require("torch")

import torch

from autotune.dispatch import Dispatcher
from autotune.problem import Problem, parse_size
from benchmarks.dispatch_rivals import BARE, TORCH, Call, bare_launches, cupy_launches, liger, pycuda_launches, torch_softmax, triton_launch
from benchmarks.dispatch_run import Deadline, OutOfTime, about, yardstick_us

NEW_ADDRESSES = 5000  # more than a dispatcher has places for
CALLS = 300  # per sample: well below the depth at which a full launch queue holds the host back
NEW_SIZES = range(300, 500)  # columns
MEASURING_S = 12.0  # kept free for measuring what is ready

OURS = "autotune.softmax, out given"
MOST_OVER_BARE_US, MOST_DECISION_US = 1.5, 50.0

Family = Callable[[Dispatcher, Any, Any], dict[str, Call]]


@click.command()
@click.option("--size", default="64x128", show_default=True)
@click.option("--rounds", default=41, show_default=True, help="Fewer where time is short.")
@click.option("--seconds", default=60.0, show_default=True, help="The whole run ends by then, imports included.")
@click.option("--db", type=click.Path(exists=True, path_type=Path))
@click.option("--json", "path", type=click.Path(path_type=Path), help="Where the figures are written.")
def main(size: str, rounds: int, seconds: float, db: Path | None, path: Path | None) -> None:
    """Print the table of host times."""
    faulthandler.enable()  # a driver or a library that is handed nonsense may end the process without a word
    faulthandler.dump_traceback_later(seconds + 10, exit=True)
    require_gpu()
    deadline = Deadline(seconds)
    rows, cols = parse_size(size)
    softmax = Dispatcher("softmax", db=db)
    x, out = torch.randn(rows, cols, device="cuda"), torch.empty(rows, cols, device="cuda")
    run = about(torch.cuda.get_device_name()) | {"size": size, "calls": CALLS, "rounds": rounds, "seconds": seconds}
    figures: dict[str, float] = {}
    over_bare: dict[str, float] = {}
    yardsticks = [run["yardstick_us"]]
    groups = (ours, bare_launches, torch_softmax, pycuda_launches, pieces), (bare_launches, cupy_launches, triton_launch, liger)
    for families in groups:
        calls = ready(families, deadline, softmax, x, out)
        if OURS not in {**calls, **figures}:
            raise click.ClickException("ours does not run here; what is above says why")
        _say(f"measuring {len(calls)} contestants")
        found = measure(calls, rounds, deadline)
        if not figures:
            _say(f"deciding for {len(NEW_SIZES)} new sizes")
            found |= new_sizes(softmax)
        yardsticks.append(round(yardstick_us(), 1))
        bare = found.get(BARE)
        over_bare = {name: us - bare for name, us in found.items() if name in calls and bare is not None} | over_bare
        figures = found | figures
        if path is not None:
            told = {**run, "yardsticks_us": yardsticks, "us": figures, "us_over_bare": over_bare}
            path.write_text(json.dumps(told, indent=2) + "\n")
        show(figures, over_bare)
    _say(f"yardstick: {', '.join(f'{us:.0f}' for us in yardsticks)} us, on {run['processor'] or 'an unknown processor'}")


def show(figures: dict[str, float], over_bare: dict[str, float]) -> None:
    """Print the table, and which bars are met."""
    for name, us in sorted(figures.items(), key=lambda item: item[1]):
        print(f"{us:8.2f} us  {f'{over_bare[name]:+8.2f}' if name in over_bare else '':8}  {name}")
    for held, bar in bars(figures):
        print(f"{'met' if held else 'NOT MET'}: {bar}", flush=True)


def _say(what: str) -> None:
    print(f"{time.strftime('%T')} {what}", flush=True)


def ready(families: tuple[Family, ...], deadline: Deadline, softmax: Dispatcher, x: Any, out: Any) -> dict[str, Call]:
    """Every contestant of `families` that is installed and in working order before the time for measuring begins."""
    calls: dict[str, Call] = {}
    for family in families:
        _say(f"preparing {family.__name__}")
        try:
            with deadline.within(MEASURING_S):
                members = family(softmax, x, out)
                for call in members.values():
                    call()
            torch.cuda.synchronize()
            calls |= members
        except OutOfTime as end:
            _say(f"left out: {family.__name__} ({end})")
        except Exception as error:  # a rival that is broken here must not cost the others' figures
            _say(f"left out: {family.__name__} ({type(error).__name__}: {error})")
    return calls


def measure(calls: dict[str, Call], rounds: int, deadline: Deadline) -> dict[str, float]:
    """The median time of each call over interleaved rounds, in microseconds."""
    taken: dict[str, list[float]] = {name: [] for name in calls}
    for call in calls.values():
        for _ in range(50):
            call()
    for done in range(rounds):
        if done and not deadline.left_s(MEASURING_S / 2):
            break
        for name, call in calls.items():
            torch.cuda.synchronize()
            begun = time.perf_counter()
            for _ in range(CALLS):
                call()
            taken[name].append((time.perf_counter() - begun) / CALLS * 1e6)
    return {name: statistics.median(times) for name, times in taken.items()}


def new_sizes(softmax: Dispatcher) -> dict[str, float]:
    """The median time to choose a kernel for a size never seen, to choose and bind one, and of the whole first call, in microseconds."""
    planner = softmax._planner(torch.cuda.current_device())
    sizes = [(64, cols) for cols in NEW_SIZES]
    chosen = list(timed(planner.selector.choose, [Problem("softmax", *size) for size in sizes]))
    problems = [Problem("softmax", *size) for size in sizes]
    bound = list(timed(lambda problem: planner.launch_of(problem, loaded_only=False), problems))
    arrays = [(torch.randn(60, cols, device="cuda"), torch.empty(60, cols, device="cuda")) for cols in NEW_SIZES]
    torch.cuda.synchronize()
    called = list(timed(lambda pair: softmax(pair[0], out=pair[1]), arrays))
    torch.cuda.synchronize()
    whole = {"a decision for a new size": chosen, "a decision, and its launch bound": bound, "the first call of a new size": called}
    return {name: statistics.median(times) for name, times in whole.items()}


def bars(figures: dict[str, float]) -> Iterator[tuple[bool, str]]:
    """Whether each bar is met, and what it is."""
    us, decision = figures[OURS], figures["a decision for a new size"]
    if TORCH in figures:
        yield us <= figures[TORCH], f"a call takes {us:.2f} us and torch's with out= {figures[TORCH]:.2f} us"
    if BARE in figures:
        most = figures[BARE] + MOST_OVER_BARE_US
        yield us <= most, f"a call takes {us:.2f} us and may take {most:.2f} us: the bare launch and {MOST_OVER_BARE_US} us"
    yield decision <= MOST_DECISION_US, f"a decision takes {decision:.2f} us and may take {MOST_DECISION_US:.0f} us"


def timed(call: Callable[[Any], object], arguments: list[Any]) -> Iterator[float]:
    for argument in arguments:
        begun = time.perf_counter()
        call(argument)
        yield (time.perf_counter() - begun) * 1e6


def ours(softmax: Dispatcher, x: Any, out: Any) -> dict[str, Call]:
    import autotune

    softmax(x, out=out)
    assert torch.allclose(out, torch.softmax(x, -1), rtol=1e-5)
    plan = softmax._plans.all()[0]
    source, target = x.data_ptr(), out.data_ptr()
    pairs = cycle([(torch.randn_like(x), torch.empty_like(x)) for _ in range(8)])
    memory = torch.randn(x.numel() + 32 * NEW_ADDRESSES, device="cuda")
    news = cycle([(memory[32 * place : 32 * place + x.numel()].view(x.shape), out) for place in range(NEW_ADDRESSES)])
    return {
        OURS: lambda: autotune.softmax(x, out=out),
        "autotune.softmax, result allocated": lambda: autotune.softmax(x),
        "a Dispatcher, out given": lambda: softmax(x, out),
        "a Dispatcher, result allocated": lambda: softmax(x),
        "a Dispatcher, in place": lambda: softmax(x, x),
        "a Dispatcher, 8 pairs of tensors in turn": lambda: softmax(*next(pairs)),
        "a Dispatcher, memory that never comes again": lambda: softmax(*next(news)),
        "the plan's launch alone": lambda: plan.launch(target, source, 0),
        "torch.empty_like": lambda: torch.empty_like(x),
    }


def pieces(softmax: Dispatcher, x: Any, out: Any) -> dict[str, Call]:
    """What a call whose memory comes again does, one by one."""
    from autotune.dispatch.torch_known import comparison

    softmax(x, out)
    plan = next(plan for plan in softmax._plans.all() if not plan.problem.in_place)
    alike, raw, ordinal = comparison(x, out), torch._C._cuda_getCurrentRawStream, x.get_device()
    members: dict[str, Call] = {
        "piece: nothing": lambda: None,
        "piece: data_ptr": lambda: x.data_ptr(),
        "piece: the current stream": lambda: raw(ordinal),
    }
    if alike is not None:
        members["piece: torch's comparison of two tensors"] = lambda: alike(x, out)
    if plan.fix is not None:
        launch, fixed, memory = plan.fix(out.data_ptr(), x.data_ptr(), 0)
        members["piece: the ready launch"] = lambda kept=memory: launch(*fixed)
    return members


if __name__ == "__main__":
    started(main)
