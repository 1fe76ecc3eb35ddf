"""The usual softmax in Triton, one program per row: a rival of `softmax_peers.py`, in a file of its own because Triton reads its source."""

import triton
import triton.language as tl


@triton.jit
def kernel(output, source, cols, stride, BLOCK: tl.constexpr):  # noqa: N803
    row = tl.program_id(0).to(tl.int64)
    offsets = tl.arange(0, BLOCK)
    inside = offsets < cols
    values = tl.load(source + row * stride + offsets, mask=inside, other=-float("inf")).to(tl.float32)
    exponentials = tl.exp(values - tl.max(values, 0))
    tl.store(output + row * stride + offsets, exponentials / tl.sum(exponentials, 0), mask=inside)
