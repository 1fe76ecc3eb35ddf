"""v10 at the most blocks that may share a row: what one warp sums of all of them stays within the tolerance."""

import numpy as np

from autotune import source
from autotune.backends.emulation.run import Launch
from autotune.check import compare
from autotune.configuration import Configuration
from autotune.device import EMULATOR
from autotune.problem import Problem
from tests.emulated import SOFTMAX, library, matrix

BLOCKS, FINE = 264, 22  # of a row at most; a sum in units of 2^-22 once was


def test_parts_of_264_blocks_that_are_each_less_than_half_a_coarse_unit_are_not_lost() -> None:
    configuration = Configuration.of("v10", block=256, items=8, vector=4, hold="exponentials", edges="exact")
    per_block = 256 * 8 * 4
    small = np.nextafter(np.float32(np.log(0.4995 * 2.0**-FINE)), np.float32(-99))
    row = np.full(BLOCKS * per_block, -np.inf, np.float32)
    # A lane reads four parts at a time, 32 blocks apart: one is small, and the others are empty.
    blocks = [first + lane for first in range(0, BLOCKS, 128) for lane in range(1, 32) if first + lane < BLOCKS]
    row[per_block * np.array(blocks)] = small
    row[0] = 0.0
    problem = Problem("softmax", 1, len(row), "float32")
    x, y = matrix(1, len(row)), matrix(1, len(row), fill=7.0)
    x[0] = row

    version = SOFTMAX.version("v10")
    plan = version.launch(configuration, problem, EMULATOR)
    assert plan.blocks == BLOCKS
    workspace = np.zeros(plan.workspace_bytes // 8 + 1, np.uint64)
    arguments = (y, x, 1, problem.cols, problem.output_stride, problem.input_stride, workspace)
    symbol = source.symbol(version, configuration, "float32")
    library((configuration,), "float32").launch(Launch(symbol, arguments, plan.blocks, 256, shared_bytes=plan.shared_bytes))
    expected = SOFTMAX.reference(x.astype(np.float64))
    comparison = compare(np.array(y), expected, SOFTMAX.tolerances["float32"])
    assert comparison, str(comparison)
    # One after another, blocks wait in vain and read the row themselves, but the last one finds all parts. The tolerance has to cover
    # the rounding of each element as well, so that the sum alone must be nearer.
    last = (BLOCKS - 1) * per_block
    assert abs(float(y[0, last]) / expected[0, last] - 1) < 5e-6
