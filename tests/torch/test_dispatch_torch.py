"""torch's tensors on the emulator: the short path and what must not take it, gradients, torch.compile."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from autotune.dispatch import Dispatcher, torch_known, torch_operator
from autotune.dispatch.dispatcher import DISPATCHERS
from autotune.errors import UsageError


@pytest.fixture
def softmax() -> Dispatcher:
    return Dispatcher("softmax", device="emulator")


def close(y: Any, x: Any) -> bool:
    return bool(torch.allclose(y.double(), torch.softmax(x.double(), -1), rtol=1e-5, atol=1e-37))


def twice(call: Callable[[], Any]) -> Any:
    """The first call makes the plan, the second one finds it."""
    call()
    return call()


@pytest.mark.parametrize("shape", [(8, 64), (64,), (2, 4, 64), (1, 1), (3, 33)])
def test_results_are_right_allocated_and_given(softmax: Dispatcher, shape: tuple[int, ...]) -> None:
    x, out = torch.randn(shape), torch.empty(shape)
    assert close(twice(lambda: softmax(x)), x)
    assert twice(lambda: softmax(x, out=out)) is out
    assert close(out, x)
    assert type(softmax(torch.nn.Parameter(x, requires_grad=False))) is torch.Tensor


def test_packed_tensors_share_one_plan_and_others_get_their_own(softmax: Dispatcher) -> None:
    x, out = torch.randn(8, 64), torch.empty(8, 64)
    for _ in range(3):
        softmax(x), softmax(x, out), softmax(torch.randn(8, 64), torch.empty(8, 64))
    assert (softmax.stats().plans, softmax.stats().hits) == (1, {"safe": 9})
    wide = torch.randn(8, 100)
    assert close(twice(lambda: softmax(wide[:, 3:67])), wide[:, 3:67])
    misaligned = torch.randn(8 * 64 + 1)[1:].view(8, 64)
    assert close(twice(lambda: softmax(misaligned)), misaligned)
    assert softmax.stats().plans == 3


def test_in_place_overwrites_the_input_before_and_after_the_plan_of_that_shape_is_made(softmax: Dispatcher) -> None:
    for _ in range(2):
        x = torch.randn(8, 64)
        before = x.clone()
        assert softmax(x, out=x) is x
        assert close(x, before)
        softmax(before)


REFUSED: list[tuple[Callable[[Any], Any], str]] = [
    (lambda x: torch.empty(64, 8), "out is 64x8 of float32 and the input is 8x64 of float32"),
    (lambda x: torch.empty(4, 64), "out is 4x64"),
    (lambda x: torch.empty(8, 64, dtype=torch.float64), "holds float64"),
    (lambda x: torch.empty(64, 8).T, "last axis must be contiguous"),
    (lambda x: torch.empty(8, 64, requires_grad=True), "out= cannot be combined with a gradient"),
    (lambda x: x.view(-1)[4:].as_strided((8, 64), (64, 1)), "must be the input itself or not overlap it"),
]


@pytest.mark.parametrize(("make", "sentence"), REFUSED, ids=[sentence for _, sentence in REFUSED])
def test_an_output_that_cannot_be_taken_is_refused_at_the_first_call_and_after_good_ones(
    softmax: Dispatcher, make: Callable[[Any], Any], sentence: str
) -> None:
    x = torch.randn(9 * 64)[:512].view(8, 64)
    out = make(x)
    for _ in range(2):
        with pytest.raises(UsageError, match=sentence):
            softmax(x, out=out)
        softmax(x, out=torch.empty(8, 64))


def test_pairs_of_tensors_are_known_again_only_as_long_as_their_plan_lives(softmax: Dispatcher) -> None:
    x, out = torch.randn(8, 64), torch.empty(8, 64)
    assert torch_known.comparison(x, out) is not None
    for _ in range(3):
        softmax(x, out)
    softmax.reload()
    assert softmax.stats().plans == 0
    for _ in range(3):
        softmax(x, out)
    assert (softmax.stats().plans, softmax.stats().misses, softmax.stats().hits) == (1, 2, {"safe": 6})


def test_shapes_of_as_many_elements_are_never_taken_for_each_other(softmax: Dispatcher) -> None:
    tensors = [torch.randn(shape) for shape in ((8, 64), (64, 8), (512,), (2, 4, 64), (4, 2, 64))]
    for _ in range(torch_known.MOST_CHANGES + 2):
        for x in tensors:
            assert close(softmax(x), x)
            assert close(softmax(x, torch.empty_like(x)), x)
            half = x.view(-1)[:256].view(4, 64)
            assert close(softmax(half), half)
    assert sum(softmax.stats().hits.values()) == 3 * len(tensors) * (torch_known.MOST_CHANGES + 2)


def ready(softmax: Dispatcher) -> list[int]:
    """Lets launches in the emulator be made ready as those on a GPU are; what they were made ready for."""
    made: list[int] = []
    for plan in softmax._plans.all():

        def fix(target: int, source: int, stream: int, launch: Any = plan.launch) -> tuple[Callable[..., int], tuple[int, ...], object]:
            made.append(target)
            return launch, (target, source, stream), None

        plan.fix = fix
    return made


def test_tensors_in_memory_that_comes_again_are_ready(softmax: Dispatcher) -> None:
    x, out = torch.randn(8, 64), torch.empty(8, 64)
    softmax(x, out), softmax(x, x.clone())
    made = ready(softmax)
    for _ in range(4):
        x.copy_(torch.randn(8, 64))
        assert softmax(x, out.zero_()) is out
        assert close(out, x)
    assert made == [out.data_ptr()]
    again = out.view(64, 8).t()[:8, :8]
    with pytest.raises(UsageError, match="last axis must be contiguous"):
        softmax(x[:8, :8], again)
    softmax.reload()
    assert close(softmax(x, out.zero_()), x)
    assert made == [out.data_ptr()]


def test_an_input_that_is_its_own_output_is_ready_too(softmax: Dispatcher) -> None:
    x = torch.randn(8, 64)
    softmax(x, x)
    made = ready(softmax)
    for _ in range(4):
        x.copy_(torch.randn(8, 64))
        before = x.clone()
        assert softmax(x, x) is x
        assert close(x, before)
        other = x.view(8, 64)
        before = x.clone()
        assert softmax(x, other) is other
        assert close(x, before)
    assert set(made) == {x.data_ptr()}
    assert sum(softmax.stats().hits.values()) == 9


def test_other_tensors_in_memory_that_was_ready_get_their_own_results(softmax: Dispatcher) -> None:
    x, out = torch.randn(512), torch.empty(512)
    for _ in range(20):
        for shape in ((8, 64), (64, 8), (512,), (4, 128)):
            softmax(x.view(shape), out.view(shape))
            made = ready(softmax)
            assert close(out.view(shape), x.view(shape))
            with torch.inference_mode():
                softmax(x.view(shape), out.view(shape).zero_())
            assert close(out.view(shape), x.view(shape))
    assert made == []


def test_a_ready_launch_that_fails_is_made_the_long_way(softmax: Dispatcher) -> None:
    x, out, failures = torch.randn(8, 64), torch.empty(8, 64), list[int]()

    def fail() -> int:
        failures.append(201)
        return 201

    softmax(x, out)
    (plan,) = softmax._plans.all()
    plan.fix = lambda target, source, stream: (fail, (), None)
    for _ in range(5):
        assert close(softmax(x, out.zero_()), x)
    assert failures == [201, 201, 201]
    assert softmax.stats().hits == {"safe": 6}


def test_a_tensor_known_without_gradients_still_gets_its_gradient(softmax: Dispatcher) -> None:
    x = torch.randn(8, 64, requires_grad=True)
    with torch.no_grad():
        for _ in range(3):
            assert not softmax(x).requires_grad
            softmax(x, out=torch.empty(8, 64))
    with pytest.raises(UsageError, match="out= cannot be combined with a gradient"):
        softmax(x, out=torch.empty(8, 64))
    y = softmax(x)
    assert y.requires_grad
    y.square().sum().backward()
    assert x.grad is not None
    with torch.inference_mode():
        for _ in range(3):
            assert softmax(x).is_inference()
    assert not softmax(x.detach()).is_inference()


def test_a_refusal_is_one_error_without_another_behind_it(softmax: Dispatcher) -> None:
    for out in (None, torch.empty(4)):
        with pytest.raises(UsageError) as refused:
            softmax(torch.randn(8, 64, dtype=torch.float64), out)
        assert refused.value.__context__ is None


def test_a_comparison_tells_all_apart_that_a_plan_depends_on() -> None:
    x, out = torch.randn(8, 64), torch.empty(8, 64)
    alike = torch_known.comparison(x, out)
    assert alike is not None
    assert alike(torch.empty(8, 64), torch.empty(8, 64))
    for other in (
        torch.empty(8, 65)[:, :64],
        torch.empty(4, 64),
        torch.empty(512),
        torch.empty(8, 64, dtype=torch.float16),
        torch.empty(8, 64, device="meta"),
        torch.empty(8, 64, requires_grad=True),
        torch.nn.Parameter(torch.empty(8, 64), requires_grad=False),
    ):
        assert not alike(other, out)
        assert not alike(x, other)


def test_modes_that_alternate_change_nothing_but_the_cost(softmax: Dispatcher) -> None:
    x, out = torch.randn(8, 64), torch.empty(8, 64)
    for step in range(40):
        with torch.inference_mode(step % 2 == 0):
            softmax(x, out.zero_())
            assert close(out, x)
    assert softmax.stats().hits == {"safe": 40}


def test_a_gradient_flows_and_none_is_kept_without_need(softmax: Dispatcher) -> None:
    x, weight = torch.randn(8, 64, requires_grad=True), torch.randn(8, 64)
    softmax(x.detach())
    (softmax(x) * weight).sum().backward()
    reference = x.detach().double().requires_grad_()
    (torch.softmax(reference, -1) * weight).sum().backward()
    assert x.grad is not None
    assert torch.allclose(x.grad.double(), reference.grad, rtol=1e-3, atol=1e-7)
    with torch.no_grad():
        assert not softmax(x).requires_grad
        assert close(softmax(x, out=torch.empty(8, 64)), x)
    with torch.inference_mode():
        assert close(softmax(x), x)


def test_torch_compile_traces_through_every_dispatcher_without_a_break(softmax: Dispatcher) -> None:
    other = Dispatcher("softmax", device="emulator")

    def both(x: Any, out: Any) -> Any:
        softmax(x, out=out)
        return other(x * 2) + out

    x, out = torch.randn(8, 64), torch.empty(8, 64)
    compiled = torch.compile(both, fullgraph=True, backend="aot_eager")
    assert torch.allclose(compiled(x, out), torch.softmax(x, -1) + torch.softmax(2 * x, -1), rtol=1e-5)
    assert softmax.stats().hits == other.stats().hits == {"safe": 1}
    x.requires_grad_()
    torch.compile(lambda x: softmax(x).square().sum(), fullgraph=True, backend="aot_eager")(x).backward()
    reference = x.detach().clone().requires_grad_()
    torch.softmax(reference, -1).square().sum().backward()
    assert torch.allclose(x.grad, reference.grad, rtol=1e-3, atol=1e-7)


def test_a_graph_whose_dispatcher_is_gone_says_so() -> None:
    with pytest.raises(UsageError, match="dispatcher 1000000 of this graph is gone; keep the Dispatcher"):
        torch_operator.new(torch.randn(8, 64), 1000000)
    assert 1000000 not in DISPATCHERS


def test_a_tensor_without_memory_is_refused_whatever_was_planned_for_its_shape(softmax: Dispatcher) -> None:
    freed = torch.randn(8, 64)
    freed.untyped_storage().resize_(0)
    softmax(torch.randn(8, 64)), softmax(torch.randn(0, 64))
    for x in (freed, torch.empty(8, 64, device="meta")):
        for out in (None, torch.empty(8, 64)):
            with pytest.raises(UsageError, match="has no memory"):
                softmax(x, out=out)
    with pytest.raises(UsageError, match="has no memory"):
        softmax(torch.randn(8, 64), out=freed)
    with pytest.raises(UsageError, match=r"the tensor has the layout torch\.sparse_coo"):
        softmax(torch.eye(8).to_sparse())
    assert softmax.stats().hits == {"safe": 1, "empty": 1}


def test_a_tensor_that_means_other_numbers_than_its_memory_holds_is_worked_out_first(softmax: Dispatcher) -> None:
    x, out = torch.randn(8, 64), torch.empty(8, 64)
    for _ in range(3):
        softmax(x), softmax(x, out)
    negated = torch._neg_view(x)
    assert close(softmax(negated), -x)
    softmax(negated, out)
    assert close(out, -x)
    with pytest.raises(UsageError, match="out is a negation that is still to be done"):
        softmax(x, torch._neg_view(out))
    batched = torch.vmap(softmax)(x.view(2, 4, 64))
    assert close(batched.view(8, 64), x)


def test_a_comparison_that_sees_less_than_it_must_is_not_trusted(monkeypatch: pytest.MonkeyPatch) -> None:
    class Blind:
        """As torch's, but for one thing that it does not look at."""

        def __init__(self, *tensors: Any, **how: Any) -> None:
            self.seen = [self.of(tensor) for tensor in tensors]

        def check(self, *tensors: Any) -> bool:
            return self.seen == [self.of(tensor) for tensor in tensors]

        def of(self, tensor: Any) -> dict[str, Any]:
            said = {"sizes": tensor.shape, "strides": tensor.stride(), "dtype": tensor.dtype, "device": tensor.device}
            return {name: value for name, value in (said | {"gradient": tensor.requires_grad}).items() if name != self.blind}

        blind = ""

    x, out = torch.randn(8, 64), torch.empty(8, 64)
    for blind in ("", "sizes", "strides", "dtype", "device", "gradient"):
        guards = type("Guards", (Blind,), {"blind": blind})
        monkeypatch.setattr(torch_known, "_guards", lambda guards=guards: guards)
        for tensors in ((x,), (x, out)):
            assert (torch_known.comparison(*tensors) is not None) == (blind == ""), blind
