"""Compiled kernels in a database come back as they were, however they are packed, and nothing else ever looks like one."""

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.configuration import Configuration
from autotune.database import Database
from autotune.database.packing import MOST_BINARY_BYTES, pack, pack_tightly, unpack
from autotune.dispatch.store import Layer, StoredInstance, binary
from tests.database_samples import CUBIN, FAST, begin, instance


@settings(deadline=None, max_examples=30)
@given(st.binary())
def test_what_was_packed_comes_back(content: bytes) -> None:
    assert unpack(pack(content)) == unpack(pack_tightly(content)) == content


@settings(deadline=None, max_examples=30)
@given(st.binary(max_size=200), st.integers(0, 199), st.integers(1, 255))
def test_damaged_bytes_are_never_an_exception(content: bytes, place: int, flipped: int) -> None:
    for packed in (pack(content), pack_tightly(content)):
        damaged = bytearray(packed)
        damaged[place % len(packed)] ^= flipped
        assert isinstance(unpack(bytes(damaged)), bytes)
        assert isinstance(unpack(packed[: place % len(packed)]), bytes)


@pytest.mark.parametrize("packing", [pack, pack_tightly])
def test_a_small_blob_never_fills_the_memory(packing: Callable[[bytes], bytes]) -> None:
    assert len(unpack(packing(bytes(MOST_BINARY_BYTES + 4096)))) <= MOST_BINARY_BYTES


def test_binaries_packed_tightly_are_read_by_the_database_an_import_and_the_dispatcher(tmp_path: Path) -> None:
    path = tmp_path / "mine.sqlite"
    with Database(path, create=True) as db:
        begin(db)
        sha = db.store_binary(instance(FAST))
        db.pack_binaries()
        (row,) = db.select("SELECT packed FROM binaries")
        assert row["packed"] == pack_tightly(CUBIN)
        assert db.load_binary(sha) == CUBIN
        templates = [row["sha"] for row in db.select("SELECT sha FROM templates")]
    with Database(tmp_path / "other.sqlite", create=True) as other:
        other.import_from(path, kernels_of=templates)
        assert other.load_binary(sha) == CUBIN
    stored = StoredInstance(Configuration.of("v3", block=256), "float32", "sm_90", "cubin", "symbol", sha, Layer(path))
    assert binary(stored) == CUBIN
