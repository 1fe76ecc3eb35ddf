"""How many configurations the parameters of a definition may make, and what parameters may be called."""

from pathlib import Path

import pytest

from autotune import catalogue
from autotune.configuration import Configuration
from autotune.device import EMULATOR
from autotune.errors import UsageError
from autotune.selector.traits import ABSENT, Sight
from tests.command import refused, rows, said
from tests.test_declarations import PROBLEM, written
from tests.test_declared import TEMPLATE

# What kernels, C++, Python and the tables call something else.
AWKWARD = (
    "int",
    "Element",
    "threads",
    "workspace",
    "cls",
    "self",
    "time_us",
    "kind",
    "rows",
    "items",
    "vector",
    "hold",
    "parameters",
    "id",
)


def with_parameters(kernels: Path, parameters: dict[str, tuple[int | str, ...]]) -> Path:
    """The folder of an operation whose version has `block` and `parameters`, none of which its template reads."""
    every = {"block": (32, 64), **parameters}
    safe = {name: values[0] for name, values in every.items()}
    default = f"lambda problem, device: [('v0', {safe})]"
    folder = written(kernels, PARAMETERS=repr(every), SAFE=repr(("v0", safe)), SHARED_AMONG="{}", default=default)
    arguments = ", ".join(["int block", *(f"int unused{i}" for i in range(len(parameters)))])
    (folder / "v0.cu").write_text(TEMPLATE.replace("int block", arguments).replace("template <", "constexpr int few = 1;\ntemplate <", 1))
    return folder


def test_a_million_configurations_are_accepted_and_more_are_refused_at_once_with_their_number(tmp_path: Path) -> None:
    for count, name in ((19, "most"), (20, "more"), (5000, "far more")):
        (tmp_path / name).mkdir()
        with_parameters(tmp_path / name, {f"p{i}": (0, 1) for i in range(count)})
    assert catalogue.load("twice", tmp_path / "most").version("v0").count == 2**20
    sentence = refused("sweep", "twice", "--kernels", str(tmp_path / "more"), "--device", "emulator")
    assert sentence == (
        f"autotune: PARAMETERS of the versions in {tmp_path / 'more' / 'twice'} make 2,097,152 configurations, most of them of v0, and at "
        "most 1,048,576 can be asked one by one whether they are applicable; list fewer values"
    )
    with pytest.raises(UsageError, match=r" make more than 10\^18 configurations, "):  # Python writes no number of 1500 digits and more
        catalogue.load("twice", tmp_path / "far more")


def test_versions_are_counted_together(tmp_path: Path) -> None:
    folder = with_parameters(tmp_path, {f"p{i}": (0, 1) for i in range(19)})
    (folder / "v1.py").write_text((folder / "v0.py").read_text())
    with pytest.raises(UsageError, match=" make 2,097,152 configurations, "):
        catalogue.load("twice", tmp_path)


@pytest.mark.parametrize("name", ["packs", "version"])
def test_a_parameter_with_a_name_of_the_tuners_own_is_refused_where_it_is_loaded(name: str, tmp_path: Path) -> None:
    folder = with_parameters(tmp_path, {name: (1, 2)})
    with pytest.raises(UsageError) as caught:
        catalogue.load("twice", tmp_path)
    assert str(caught.value).startswith(f"PARAMETERS of {folder / 'v0.py'} is {{'block': (32, 64), '{name}': (1, 2)}}; ")
    assert str(caught.value).endswith(f"; give {name} another name, for packs and version mean something else beside parameters")


def test_parameters_may_be_called_like_anything_else(tmp_path: Path) -> None:
    with_parameters(tmp_path, dict.fromkeys(AWKWARD, (1,)) | {"items": ("few", 0), "vector": (0,)})
    kernels, db = ("--kernels", str(tmp_path)), ("--db", str(tmp_path / "x.sqlite"))
    assert said("sweep", "twice", *kernels, *db, "--device", "emulator", "--size", "4x64")
    (best,) = rows("inspect", "best", *db)
    assert tuple(best["parameters"]) == ("block", *AWKWARD)
    said("export", str(tmp_path / "out.sqlite"), *db, "--t4", str(tmp_path / "t4.json"), "--optuna", str(tmp_path / "optuna.sqlite"))
    assert (tmp_path / "t4.json").read_text().count('"int": 1') == 4


def test_a_selector_sees_parameters_that_are_numbers_here_and_names_there(tmp_path: Path) -> None:
    folder = with_parameters(tmp_path, {"items": ("few", 0, 2), "vector": (0, 4)})
    (folder / "v1.py").write_text((folder / "v0.py").read_text().replace("'items': ('few', 0, 2)", "'items': (1, 2)"))
    twice = catalogue.load("twice", tmp_path)
    sight = Sight(twice, EMULATOR)
    seen = [sight.traits(configuration, PROBLEM) for configuration in twice.configurations()]
    assert len({len(traits) for traits in seen}) == 1
    assert len(set(seen)) == len(seen)
    few, zero = (sight.traits(Configuration.of("v0", block=32, items=items, vector=4), PROBLEM)[2] for items in ("few", 0))
    assert ABSENT == few < zero < 0
