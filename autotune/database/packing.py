"""How compiled kernels are compressed in a database: zlib where they are made, xz where they travel. Only the standard library.

A cubin of ours is larger than the 32 KB that zlib looks back, and its kernels resemble each other: xz makes it less than half as large,
and takes a second or two per megabyte for that.
"""

import zlib
from collections.abc import Callable

XZ = b"\xfd7zXZ\x00"  # what an xz stream begins with, and no zlib stream does

MOST_BINARY_BYTES = 64 << 20  # far above any cubin of ours; keeps a small compressed blob from filling the memory


def pack(binary: bytes) -> bytes:
    """`binary` compressed quickly."""
    return zlib.compress(binary)


def pack_tightly(binary: bytes) -> bytes:
    """`binary` compressed as far as it goes."""
    import lzma

    return lzma.compress(binary, check=lzma.CHECK_NONE, preset=6 | lzma.PRESET_EXTREME)


def unpack(packed: bytes) -> bytes:
    """What was packed, or b"" for what was not or is too large for a binary: no binary of ours has the hash of that."""
    return _unxz(packed) if packed.startswith(XZ) else _expanded(zlib.decompressobj().decompress, packed, zlib.error)


def _unxz(packed: bytes) -> bytes:
    try:
        import lzma
    except ImportError:  # a Python that was built without liblzma
        return b""
    return _expanded(lzma.LZMADecompressor(lzma.FORMAT_XZ).decompress, packed, lzma.LZMAError)


def _expanded(decompress: Callable[[bytes, int], bytes], packed: bytes, damaged: type[Exception]) -> bytes:
    try:
        return decompress(packed, MOST_BINARY_BYTES)
    except damaged:
        return b""
