"""The store of compiled instances gives back what was put, whole or not at all."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from autotune import cubins
from autotune.cubins import Cubins
from autotune.trial import Resources

RESOURCES = Resources(registers=32, spill_bytes=0, local_bytes=8, static_shared_bytes=264)


def test_an_instance_comes_back_in_another_process_of_the_store(tmp_path: Path) -> None:
    Cubins(tmp_path).put(b"code of two", {"one": RESOURCES, "two": None})
    assert Cubins(tmp_path).get("one") == (b"code of two", RESOURCES)
    assert Cubins(tmp_path).get("two") == (b"code of two", None)
    assert Cubins(tmp_path).get("three") is None


@pytest.mark.parametrize("content", [b"", b"code o", b"other code!"])
def test_a_damaged_cubin_is_as_good_as_none(tmp_path: Path, content: bytes) -> None:
    Cubins(tmp_path).put(b"code of two", {"one": RESOURCES})
    (file,) = tmp_path.glob("cubins/*.cubin")
    file.write_bytes(content)
    assert Cubins(tmp_path).get("one") is None
    Cubins(tmp_path).put(b"code of two", {"one": RESOURCES})
    assert Cubins(tmp_path).get("one") == (b"code of two", RESOURCES)


@pytest.mark.parametrize("content", ["", '{"cubin": "', "[]", '{"cubin": "00", "resources": {"size": 1}}'])
def test_a_damaged_entry_is_as_good_as_none(tmp_path: Path, content: str) -> None:
    Cubins(tmp_path).put(b"code", {"one": RESOURCES})
    (tmp_path / "cubins" / "one.json").write_text(content)
    assert Cubins(tmp_path).get("one") is None


def test_a_place_that_cannot_be_written_stores_nothing_and_says_nothing(tmp_path: Path) -> None:
    (tmp_path / "cubins").write_text("a file where the folder should be")
    store = Cubins(tmp_path)
    store.put(b"code", {"one": None})
    assert store.get("one") is None


def test_many_writers_leave_whole_entries_and_no_temporary_files(tmp_path: Path) -> None:
    def write(number: int) -> None:
        Cubins(tmp_path).put(b"code" * 10000, {f"instance{i}": RESOURCES for i in range(20)})

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(write, range(32)))
    assert all(Cubins(tmp_path).get(f"instance{i}") == (b"code" * 10000, RESOURCES) for i in range(20))
    assert len(list((tmp_path / "cubins").iterdir())) == 21


def test_a_name_depends_on_everything_that_the_code_depends_on() -> None:
    base = ("source", "-O3", "sm_90", "nvcc 13.0")
    changed = [tuple("other" if i == at else part for i, part in enumerate(base)) for at in range(4)]
    assert len({cubins.key(*parts) for parts in [base, *changed]}) == 5


def test_the_folder_is_named_by_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("AUTOTUNE_CACHE", str(tmp_path))
    assert cubins.default_folder() == tmp_path
