"""The element types that kernels read and write, under their NumPy names."""

from dataclasses import dataclass

from autotune.errors import UsageError, shown


@dataclass(frozen=True, slots=True)
class Element:
    """One element type: its NumPy name, its size, its CUDA C++ name and the CUDA header that declares it ("" for none)."""

    name: str
    bytes: int
    cuda: str
    header: str


ELEMENTS = {
    element.name: element
    for element in (
        Element("float32", 4, "float", ""),
        Element("float16", 2, "__half", "cuda_fp16.h"),
        Element("bfloat16", 2, "__nv_bfloat16", "cuda_bf16.h"),
    )
}


def element(name: str) -> Element:
    """The element type called `name`.

    >>> element("float32").bytes
    4

    Raises UsageError for any other name.
    """
    try:
        return ELEMENTS[name]
    except (KeyError, TypeError):  # the second of what cannot be looked up
        raise UsageError(f"dtype {shown(name)} is not known; use {', '.join(ELEMENTS)}") from None
