"""`autotune verify`: each failure once, a size that cannot be set up costs only itself, and nothing verified is no success."""

from pathlib import Path

from tests.command import run
from tests.test_declared import DEFINITION, OPERATION, TEMPLATE


def written(kernels: Path, template: str) -> Path:
    folder = kernels / "twice"
    folder.mkdir()
    for name, text in (("operation.py", OPERATION), ("v0.py", DEFINITION), ("v0.cu", template)):
        (folder / name).write_text(text)
    return kernels


def limited(kernels: Path, most_cols: int) -> Path:
    """The operation, with a version that takes rows of so many columns at most."""
    written(kernels, TEMPLATE)
    definition = DEFINITION.replace(
        "all_of()", f'all_of((problem.cols <= {most_cols}, f"{{problem.cols}} columns are more than it takes"))'
    )
    (kernels / "twice" / "v0.py").write_text(definition)
    return kernels


def verified(kernels: Path, *sizes: str) -> tuple[int, list[str], list[str]]:
    named = [word for size in sizes if "x" in size for word in ("--size", size)] + [word for word in sizes if "x" not in word]
    status, out, err = run("verify", "twice", "--kernels", str(kernels), "--device", "emulator", *named)
    return status, out.splitlines(), err.splitlines()


def test_what_is_wrong_in_the_same_way_again_and_again_is_told_once_with_how_often_and_where_first(tmp_path: Path) -> None:
    template = TEMPLATE.replace("for (", "if (block == 64 && cols == 7) output[0] = 5;\n    else for (").replace("2 * input", "3 * input")
    status, out, err = verified(written(tmp_path, template), "1x1", "2x7")
    assert (status, out[-1]) == (1, "0 right, 4 wrong")
    often, once = err  # a number of wrong elements, which differs from size to size, and what was not written
    assert often.startswith("3 x v0: wrong_result: ")
    assert often.endswith("; first v0 block 32 at twice 1x1 float32")
    assert once.partition(": ")[0] == "v0 block 64 at twice 2x7 float32"


SPIN = "timespec a, b; clock_gettime(CLOCK_MONOTONIC, &a); do clock_gettime(CLOCK_MONOTONIC, &b); while (b.tv_sec < a.tv_sec + 60);"


def test_kernels_that_hang_or_crash_are_counted_and_the_others_are_checked_and_timed(tmp_path: Path) -> None:
    faults = {16: SPIN, 96: "*reinterpret_cast<volatile int*>(16) = 1;"}
    body = " ".join(f"if (block == {block} && cols == 7) {{ {fault} }}" for block, fault in faults.items())
    written(tmp_path, "#include <time.h>\n" + TEMPLATE.replace("for (", f"{body}\n    for ("))
    (tmp_path / "twice" / "v0.py").write_text(DEFINITION.replace("(32, 64)", "(16, 32, 64, 96)"))
    status, out, err = verified(tmp_path, "1x1", "2x7", "--hang-timeout", "2")
    assert (status, out[-1]) == (1, "6 right, 2 wrong")
    hung, crashed = sorted(err)
    assert "timeout: no answer within" in hung + crashed
    assert "crashed: the process that ran it ended by SIGSEGV" in hung + crashed


def test_a_kernel_that_hangs_where_it_would_be_chosen_costs_bench_its_timeout_alone(tmp_path: Path) -> None:
    written(tmp_path, "#include <time.h>\n" + TEMPLATE.replace("for (", f"if (block == 64) {{ {SPIN} }}\n    for ("))
    mine = ("--kernels", str(tmp_path), "--db", str(tmp_path / "x.sqlite"), "--device", "emulator", "--hang-timeout", "2")
    assert run("sweep", "twice", "--size", "2x7", "--trials", "1", *mine)[0] == 0
    assert run("pin", "twice", "2x7", "v0 block 64", "--why", "to see", *mine[:-2])[0] == 0
    status, out, err = run("bench", "twice", "--size", "2x7", *mine)
    assert (status, err) == (1, "")
    assert "chosen, tier pin; timeout: no answer within" in " ".join(out.split())


def test_a_size_that_no_memory_holds_is_one_sentence_and_the_others_are_checked(tmp_path: Path) -> None:
    status, out, err = verified(written(tmp_path, TEMPLATE), "1048576x1048575", "2x3")
    assert (status, out) == (1, ["twice 2x3 float32: 2 right, 0 wrong on emulator", "2 right, 0 wrong, 1 not checked"])
    (sentence,) = err
    assert sentence.startswith("twice 1048576x1048575 float32 was not checked: it does not fit into memory: ")


SAFE_REFUSED = (
    "v0 block 32, which is SAFE and must take any input, is not applicable at twice 2x7 float32{} (7 columns are more than it takes)"
)


def test_where_nothing_is_applicable_the_reason_is_told_and_nothing_verified_is_no_success(tmp_path: Path) -> None:
    status, out, err = verified(limited(tmp_path, 5), "2x7", "3x8")
    why = "v0 has no applicable configuration ({} columns are more than it takes)"
    assert out == [
        f"twice 2x7 float32: 0 right, 0 wrong on emulator; {why.format(7)}",
        f"twice 3x8 float32: 0 right, 0 wrong on emulator; {why.format(8)}",
        "0 right, 0 wrong",
    ]
    assert err == [
        SAFE_REFUSED.format(" and at 1 more of these problems"),
        "nothing was verified, for nothing is applicable; name another version or size",
    ]
    assert status == 1


def test_a_safe_configuration_that_does_not_take_every_verified_size_is_told_and_a_fault(tmp_path: Path) -> None:
    status, out, err = verified(limited(tmp_path, 5), "2x3", "2x7")
    assert (status, out[0], out[-1]) == (1, "twice 2x3 float32: 2 right, 0 wrong on emulator", "2 right, 0 wrong")
    assert err == [SAFE_REFUSED.format("")]


def test_a_named_version_that_takes_one_of_the_sizes_says_why_not_the_other_and_is_right() -> None:
    sizes = ("--size", "2x131072", "--size", "1x5", "--dtype", "float32")
    status, out, err = run("verify", "softmax", "--version", "v12", "--device", "emulator", *sizes)
    first, second, total = out.splitlines()
    assert first.startswith("softmax 2x131072 float32: 0 right, 0 wrong on emulator; v12 has no applicable configuration (a row takes ")
    assert second == "softmax 1x5 float32: 1 right, 0 wrong on emulator"
    assert (status, total, err) == (0, "1 right, 0 wrong", "")
