"""The hot call: a kernel's launch with everything prepared but three words, or but nothing."""

import ctypes
from array import array
from collections.abc import Callable
from struct import Struct
from typing import Any

from autotune.definition import Launch
from autotune.dispatch.plan import FixedLaunch, LaunchCall
from autotune.problem import Problem

# Words of 8 bytes in a frame: CUlaunchConfig (cuda.h), the seven arguments of every kernel, the pointers to them, one attribute.
_STREAM, _ARGUMENTS, _POINTERS, _ATTRIBUTE, _WORDS = 4, 7, 14, 21, 30
_OUTPUT, _INPUT, _WORKSPACE = _ARGUMENTS, _ARGUMENTS + 1, _ARGUMENTS + 6
_COOPERATIVE = 2  # CU_LAUNCH_ATTRIBUTE_COOPERATIVE
_PACKED = Struct(f"={_ATTRIBUTE + 2}Q")
_EMPTY = array("Q", bytes(8 * _WORDS))  # whose words are set in a third of the time that those of ctypes take

# The words; what ctypes passes for the configuration and for the pointers to the arguments.
Frame = tuple["array[int]", Any, Any]


def frame(problem: Problem, launch: Launch, threads: int) -> Frame:
    """A launch's configuration, arguments and the pointers between them in one piece of memory."""
    words, base = _packed(problem, launch, threads, 0, 0, 0)
    return words, as_argument(base), as_argument(base + 8 * _POINTERS)


def fixed_launch(
    launch_kernel: Callable[..., int], function: Any, problem: Problem, launch: Launch, threads: int, output: int, source: int, stream: int
) -> FixedLaunch:
    """A launch whose words are never written again, so that any number of threads may call it; with the memory that it reads.

    Its arguments come apart: bound to it by `partial`, they would be passed on by a call more, a tenth of a microsecond.
    """
    words, base = _packed(problem, launch, threads, output, source, stream)
    return launch_kernel, (as_argument(base), function, as_argument(base + 8 * _POINTERS), None), words


def _packed(problem: Problem, launch: Launch, threads: int, output: int, source: int, stream: int) -> tuple["array[int]", int]:
    """The words of a frame, and their address."""
    words = _EMPTY[:]
    base, _ = words.buffer_info()
    configuration = (launch.blocks | 1 << 32, 1 | threads << 32, 1 | 1 << 32, launch.shared_bytes, stream)
    attributes = (base + 8 * _ATTRIBUTE, 1) if launch.cooperative else (0, 0)
    arguments = (output, source, problem.rows, problem.cols, problem.output_stride, problem.input_stride, 0)
    pointers = range(base + 8 * _ARGUMENTS, base + 8 * _POINTERS, 8)
    _PACKED.pack_into(words, 0, *configuration, *attributes, *arguments, *pointers, _COOPERATIVE, 1)
    return words, base


def as_argument(address: int) -> Any:
    """An address as ctypes passes it, converted once instead of at every call."""
    return ctypes.c_void_p.from_param(address)


def launch_call(
    launch_kernel: Callable[..., int],
    function: Any,
    new_frame: Callable[[], Frame],
    workspace_of: Callable[[int], int] | None,
    recover: Callable[[int, int], None],
) -> LaunchCall:
    """The launch of `function`. `workspace_of` is asked with the stream where the kernel needs memory of its own.

    `recover` is told the driver's error and the input's address; when it returns, the launch is tried once more.
    """
    # A frame is taken from a pool for the duration of a call: list.pop is atomic, so threads never write the same one.
    frames = [new_frame()]
    take, give = frames.pop, frames.append

    def call(output: int, source: int, stream: int) -> None:
        try:
            taken = take()
        except IndexError:
            taken = new_frame()
        words, configuration, arguments = taken
        words[_STREAM], words[_OUTPUT], words[_INPUT] = stream, output, source
        if workspace_of is not None:
            words[_WORKSPACE] = workspace_of(stream)
        code = launch_kernel(configuration, function, arguments, None)
        if code:
            recover(code, source)
            code = launch_kernel(configuration, function, arguments, None)
            if code:
                recover(code, source)
        give(taken)

    return call
