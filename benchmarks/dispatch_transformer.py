"""A small transformer with torch's softmax and with ours: the same logits, and the time of a forward pass, three ways to run it.

    python benchmarks/dispatch_transformer.py --seconds 150 --json transformer.json

The softmax of every attention and that over the vocabulary are the ones that are exchanged. It runs eagerly, under torch.compile (which
must not break the graph, and fuses torch's softmax with its neighbours but not ours), and as a captured CUDA graph. Compiling comes last
and is left out where it is not done in time. Exit status 1 when the results differ by more than rounding explains. `--device cpu` tries the
model out with torch's softmax on both sides.
"""

import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

sys.path.insert(1, str(Path(__file__).resolve().parents[1]))

from benchmarks.starting import require, require_gpu, started

require("torch")

import torch
from torch import nn

import autotune
from benchmarks.dispatch_run import Deadline, OutOfTime, about

ENDING_S = 3.0  # kept free for what is printed and written at the end

Softmax = Callable[[Any], Any]
Way = Callable[[Any, Any], Callable[[], Any]]  # a model and its tokens to a forward pass

# Of the logits, which are of order 1, and of the probabilities relative to their size, which is the same thing. Rounding alone, passed
# on from layer to layer, makes about 1e-6.
TOLERANCE = 1e-4


class Attention(nn.Module):  # type: ignore[misc,unused-ignore]
    """Causal attention with its scores written out, so that their softmax is a call of its own."""

    def __init__(self, width: int, heads: int, length: int, softmax: Softmax) -> None:
        super().__init__()
        self.heads = heads
        self.softmax = softmax
        self.mix_in = nn.Linear(width, 3 * width, bias=False)
        self.mix_out = nn.Linear(width, width, bias=False)
        self.register_buffer("future", torch.full((length, length), float("-inf")).triu(1))

    def forward(self, x: Any) -> Any:
        batch, length, width = x.shape
        query, key, value = self.mix_in(x).view(batch, length, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        scores = query @ key.transpose(-1, -2) * (width // self.heads) ** -0.5 + self.future
        return self.mix_out((self.softmax(scores) @ value).transpose(1, 2).reshape(batch, length, width))


class Block(nn.Module):  # type: ignore[misc,unused-ignore]
    """Attention and a feed-forward layer, each on the normalised input and added to it."""

    def __init__(self, width: int, heads: int, length: int, softmax: Softmax) -> None:
        super().__init__()
        self.before_attention, self.before_feeding = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(width, heads, length, softmax)
        self.feeding = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Any) -> Any:
        x = x + self.attention(self.before_attention(x))
        return x + self.feeding(self.before_feeding(x))


class Transformer(nn.Module):  # type: ignore[misc,unused-ignore]
    """From tokens to the probabilities of the next one; `forward` returns logits and probabilities."""

    def __init__(self, softmax: Softmax, vocabulary: int, length: int, width: int = 512, heads: int = 8, depth: int = 4) -> None:
        super().__init__()
        self.softmax = softmax
        self.tokens, self.places = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.blocks = nn.Sequential(*[Block(width, heads, length, softmax) for _ in range(depth)])
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)

    def forward(self, tokens: Any) -> tuple[Any, Any]:
        x = self.tokens(tokens) + self.places.weight[: tokens.shape[1]]
        logits = self.head(self.norm(self.blocks(x)))
        return logits, self.softmax(logits)


def torch_softmax(x: Any) -> Any:
    return torch.softmax(x, -1)


def our_softmax(x: Any) -> Any:
    return autotune.softmax(x)


def eager(model: Any, tokens: Any) -> Callable[[], Any]:
    return lambda: model(tokens)


def compiled(model: Any, tokens: Any) -> Callable[[], Any]:
    optimised = torch.compile(model, fullgraph=True)  # a break in the graph would raise
    return lambda: optimised(tokens)


def captured(model: Any, tokens: Any) -> Callable[[], Any]:
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):  # cuBLAS and we load what is needed before the capture
            model(tokens)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = model(tokens)

    def replay() -> Any:
        graph.replay()
        return result

    return replay


def timed(calls: dict[str, Callable[[], Any]], rounds: int, settle: Callable[[], None]) -> dict[str, float]:
    """The median time of a pass in milliseconds; the contestants take turns."""
    taken: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            settle()
            begun = time.perf_counter()
            for _ in range(5):
                call()
            settle()
            taken[name].append((time.perf_counter() - begun) / 5 * 1e3)
    return {name: statistics.median(times) for name, times in taken.items()}


def compare(
    ways: dict[str, Way], models: dict[str, Any], tokens: Any, rounds: int, settle: Callable[[], None], deadline: Deadline
) -> tuple[dict[str, dict[str, float]], float]:
    """The times per way and softmax, and the largest difference to torch run eagerly."""
    times: dict[str, dict[str, float]] = {}
    furthest = 0.0
    with torch.no_grad():
        expected = tuple(part.clone() for part in models["torch"](tokens))
        for name, way in ways.items():
            try:
                with deadline.within(ENDING_S):
                    calls = {whose: way(model, tokens) for whose, model in models.items()}
                    furthest = max(furthest, *(apart(f"{name:14} {whose:6}", call(), expected) for whose, call in calls.items()))
                    times[name] = timed(calls, rounds, settle)
            except OutOfTime as end:
                print(f"{name:14} left out: {end}", flush=True)
    return times, furthest


def apart(what: str, found: tuple[Any, Any], expected: tuple[Any, ...]) -> float:
    """The largest difference of the logits, or of a probability relative to its size."""
    logits = float((found[0] - expected[0]).abs().max())
    relative = float(((found[1] - expected[1]).abs() / expected[1]).max())
    print(f"{what} differs by {logits:.1e} in the logits, by {relative:.1e} of a probability", flush=True)
    return max(logits, relative)


@click.command()
@click.option("--device", type=click.Choice(["cuda", "cpu"]), default="cuda", show_default=True)
@click.option("--batch", default=4, show_default=True)
@click.option("--length", default=512, show_default=True)
@click.option("--vocabulary", default=32000, show_default=True)
@click.option("--rounds", default=21, show_default=True)
@click.option("--seconds", default=150.0, show_default=True, help="The whole run ends by then, imports included.")
@click.option("--json", "path", type=click.Path(path_type=Path), help="Where the figures are written.")
def main(device: str, batch: int, length: int, vocabulary: int, rounds: int, seconds: float, path: Path | None) -> None:
    """Print the differences and the times."""
    deadline, cpu = Deadline(seconds), device == "cpu"
    if not cpu:
        require_gpu()
    models: dict[str, Any] = {}
    for name, softmax in (("torch", torch_softmax), ("ours", torch_softmax if cpu else our_softmax)):
        torch.manual_seed(0)
        models[name] = Transformer(softmax, vocabulary, length).to(device).eval()
    tokens = torch.randint(vocabulary, (batch, length), device=device)
    ways: dict[str, Way] = {"eager": eager} | ({} if cpu else {"CUDA graph": captured}) | {"torch.compile": compiled}
    settle: Callable[[], None] = (lambda: None) if cpu else torch.cuda.synchronize
    times, furthest = compare(ways, models, tokens, rounds, settle, deadline)
    if path is not None:
        run = {"batch": batch, "length": length, "vocabulary": vocabulary, "seconds": seconds, "ms": times, "furthest": furthest}
        path.write_text(json.dumps({**about("cpu" if cpu else torch.cuda.get_device_name()), **run}, indent=2) + "\n")
    if not cpu:
        print(default_stats())
    for way, ms in times.items():
        print(f"{way:14} torch {ms['torch']:8.3f} ms   ours {ms['ours']:8.3f} ms   {ms['ours'] / ms['torch']:.3f} of torch's")
    sys.exit(furthest > TOLERANCE)


def default_stats() -> object:
    from autotune.dispatch import default_dispatcher

    return default_dispatcher().stats()


if __name__ == "__main__":
    started(main)
