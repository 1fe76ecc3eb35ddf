"""Functions of a definition file, made to say which of them failed, and for what: their authors see neither our calls nor our processes."""

import functools
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any

import numpy as np

from autotune.configuration import Value
from autotune.definition import MOST
from autotune.device import Device
from autotune.errors import AutotuneError, UsageError, shown
from autotune.problem import Problem

Array = np.ndarray[Any, np.dtype[Any]]

VALUES = "a whole number of 64 bits or a name"
OURS = (AutotuneError, MemoryError)  # the second is the machine's fault, not the function's


def checked(path: Path, function: Callable[..., Any], kind: type = object) -> Callable[..., Any]:
    """`function` of the definition at `path`; raises UsageError when it raises anything, or returns what is no `kind`."""

    @functools.wraps(function)
    def call(*arguments: Any) -> Any:
        try:
            result = function(*arguments)
        except OURS:
            raise
        except (Exception, SystemExit) as error:
            raise _failed(path, function, arguments, error) from error
        if not isinstance(result, kind):
            accepted = f"return a {kind.__name__}, as autotune/definition.py describes"
            raise _refused(path, function, arguments, result, accepted)
        return result

    return call


def checked_proposals(path: Path, function: Callable[..., Any]) -> Callable[..., Iterator[Any]]:
    """`default` of the operation at `path`; raises UsageError when it raises anything, or gives what is no version with parameters."""

    @functools.wraps(function)
    def propose(*arguments: Any) -> Iterator[tuple[str, dict[str, Any]]]:
        try:
            for proposal in function(*arguments):
                name, chosen = proposal if proposal.__class__ is tuple and len(proposal) == 2 else (None, None)
                if name.__class__ is not str or chosen.__class__ is not dict or (values := _values(chosen)) is None:
                    accepted = f'yield versions with parameters, {VALUES} each, such as ("v0", {{"block": 256}})'
                    raise _refused(path, function, arguments, proposal, accepted)
                yield name, values
        except OURS:
            raise
        except (Exception, SystemExit) as error:
            raise _failed(path, function, arguments, error) from error

    return propose


def checked_fit(path: Path, function: Callable[..., Any]) -> Callable[..., dict[str, Value]]:
    """`fit` of the operation at `path`; raises UsageError when it raises anything, or returns what is no dict of values of parameters."""
    asked = checked(path, function, dict)

    @functools.wraps(function)
    def fit(*arguments: Any) -> dict[str, Value]:
        result = asked(*arguments)
        values = _values(result)
        if values is None:
            raise _refused(path, function, arguments, result, f"return a dict of parameters, {VALUES} each")
        return values

    return fit


def checked_bytes(path: Path, function: Callable[[Problem], int]) -> Callable[[Problem], int]:
    """`bytes_moved` of the operation at `path`; raises UsageError when it raises anything, or returns what no problem moves."""
    moved = checked(path, function, int)

    @functools.wraps(function)
    def bytes_moved(problem: Problem) -> int:
        result: int = moved(problem)
        if not (0 if problem.empty else 1) <= result <= MOST:
            raise _refused(path, function, (problem,), result, "return the number of bytes, from 1 to 2^63 - 1")
        return result

    return bytes_moved


def checked_reference(path: Path, function: Callable[[Array], Array]) -> Callable[[Array], Array]:
    """`function` of the definition at `path`, given a float64 copy of a matrix of any element type; returns float64 of the same shape.

    Raises UsageError when it raises anything, or returns what is no array of real numbers of that shape.
    """
    computed = checked(path, function)

    @functools.wraps(function)
    def reference(x: Array) -> Array:
        given = np.array(x, np.float64)  # a copy, which `function` may do with as it likes
        asked = _word(given)
        with np.errstate(all="ignore"):  # infinities and NaN are among the inputs, and what becomes of them is right by definition
            result = computed(given)
        with suppress(ValueError, TypeError, RuntimeError):  # of what forms no array
            array = np.asarray(result)
            if array.shape == np.shape(x) and array.dtype.kind in "fiub":
                return array.astype(np.float64, copy=False)
        came = _word(result) if getattr(result, "shape", ()) else shown(result)
        raise UsageError(f"{function.__name__} of {path} returns {came} for {asked}; return an array of real numbers of the same shape")

    return reference


def running(traceback: TracebackType | None) -> str:
    """Which function of a definition was at work where `traceback` ends, with its line and for what; "" when none was."""
    found, asked = "", ""
    while traceback is not None:
        frame = traceback.tb_frame
        if asked:
            found = f"{frame.f_code.co_name} of {frame.f_code.co_filename}, line {traceback.tb_lineno}, for {asked}"
        asked = _spoken(frame.f_locals["arguments"]) if _asks(frame) else ""
        traceback = traceback.tb_next
    return found


def call_in(frame: FrameType | None) -> FrameType | None:
    """Our frame in which a function of a definition is asked, of those that led to `frame` the first; None when none is."""
    found = None
    while frame is not None:
        found, frame = (frame if _asks(frame) else found), frame.f_back
    return found


def spoken_call(frame: FrameType) -> str:
    """Which function is asked in a frame of `call_in`, and for what."""
    known = frame.f_locals
    return f"{known['function'].__name__} of {known['path']} for {_spoken(known['arguments'])}"


def _asks(frame: FrameType) -> bool:
    return frame.f_code.co_filename == __file__ and {"arguments", "function"} <= {*frame.f_code.co_varnames, *frame.f_code.co_freevars}


def _refused(path: Path, function: Callable[..., Any], arguments: tuple[Any, ...], result: object, accepted: str) -> UsageError:
    return UsageError(f"{function.__name__} of {path} returns {shown(result)} for {_spoken(arguments)}; {accepted}")


def _failed(path: Path, function: Callable[..., Any], arguments: tuple[Any, ...], error: Exception | SystemExit) -> UsageError:
    why = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return UsageError(f"{function.__name__} of {path} fails for {_spoken(arguments)} ({why}); correct it there")


def _values(chosen: dict[Any, Any]) -> dict[str, Value] | None:
    """`chosen` with whole numbers of NumPy as ones of Python; None where a value is none that a parameter may have."""
    if all(map(_is_value, chosen.values())):
        return chosen
    numbers = {name: int(value) if isinstance(value, np.integer) else value for name, value in chosen.items()}
    return numbers if all(map(_is_value, numbers.values())) else None


def _is_value(value: Any) -> bool:
    return value.__class__ is str or (value.__class__ is int and -MOST <= value <= MOST)


def _spoken(arguments: tuple[Any, ...]) -> str:
    return ", ".join(_word(argument) for argument in arguments)


def _word(argument: Any) -> str:
    if isinstance(argument, Device):
        return argument.name
    shape = getattr(argument, "shape", None)
    return f"an array of {'x'.join(map(str, shape))} {argument.dtype}" if isinstance(shape, tuple) else f"{argument}"[:80]
