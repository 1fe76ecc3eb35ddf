"""`autotune verify` where something is wrong: each failure once, and a size that cannot be set up costs only itself."""

from pathlib import Path

from tests.command import run
from tests.test_declared import DEFINITION, OPERATION, TEMPLATE


def written(kernels: Path, template: str) -> Path:
    folder = kernels / "twice"
    folder.mkdir()
    for name, text in (("operation.py", OPERATION), ("v0.py", DEFINITION), ("v0.cu", template)):
        (folder / name).write_text(text)
    return kernels


def verified(kernels: Path, *sizes: str) -> tuple[int, list[str], list[str]]:
    named = [word for size in sizes for word in ("--size", size)]
    status, out, err = run("verify", "twice", "--kernels", str(kernels), "--device", "emulator", *named)
    return status, out.splitlines(), err.splitlines()


def test_what_is_wrong_in_the_same_way_again_and_again_is_told_once_with_how_often_and_where_first(tmp_path: Path) -> None:
    template = TEMPLATE.replace("for (", "if (block == 64 && cols == 7) output[0] = 5;\n    else for (").replace("2 * input", "3 * input")
    status, out, err = verified(written(tmp_path, template), "1x1", "2x7")
    assert (status, out[-1]) == (1, "0 right, 4 wrong")
    assert len(err) == 3
    (often,) = (line for line in err if line.startswith("2 x "))
    assert often.startswith("2 x v0: wrong_result: ")
    assert often.endswith("; first v0 block 32 at twice 1x1 float32")
    assert sorted(line.partition(": ")[0] for line in err if line != often) == [f"v0 block {n} at twice 2x7 float32" for n in (32, 64)]


def test_a_size_that_no_memory_holds_is_one_sentence_and_the_others_are_checked(tmp_path: Path) -> None:
    status, out, err = verified(written(tmp_path, TEMPLATE), "1048576x1048575", "2x3")
    assert (status, out) == (1, ["twice 2x3 float32: 2 right, 0 wrong on emulator", "2 right, 0 wrong, 1 not checked"])
    (sentence,) = err
    assert sentence.startswith("twice 1048576x1048575 float32 was not checked: it does not fit into memory: ")
