"""Finds operations and loads their definitions: the shipped ones, and a user's own folder by the same path.

    <kernels>/<operation>/operation.py     what is computed (see `autotune.operation`)
    <kernels>/<operation>/v0.py, v1.py …   one version each (see `autotune.definition`)
    <templates>/<operation>/*.cu           their CUDA source, unless it lies beside the definition

Definitions are loaded from their path and never imported as modules, so a folder called `kernels` shadows nobody's package.
"""

import runpy
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from autotune.configuration import Configuration, Value
from autotune.declared import checked, checked_reference
from autotune.definition import Bounds, Launch, Verdict, Version
from autotune.errors import UsageError
from autotune.operation import Operation


@cache
def shipped(folder: str) -> Path:
    """The shipped folder `kernels`, `templates` or `results`: inside the installed package, else beside it in a checkout."""
    package = Path(__file__).resolve().parent
    inside = package / folder
    return inside if inside.is_dir() else package.parent / folder


def operation_names(kernels: Path | None = None) -> list[str]:
    """The operations that can be tuned: those of the folder `kernels` first, then the shipped ones."""
    roots = [kernels] if kernels else []
    found = [path.parent.name for root in [*roots, shipped("kernels")] for path in sorted(root.glob("*/operation.py"))]
    return list(dict.fromkeys(found))


@lru_cache(maxsize=32)
def load(name: str, kernels: Path | None = None) -> Operation:
    """The operation called `name` from the folder `kernels`, or the shipped one.

    Raises UsageError when there is none, or when a definition lacks what `autotune.definition` asks for.
    """
    if kernels and (kernels / name).is_dir() and not (kernels / name / "operation.py").is_file():
        raise UsageError(f"{kernels / name} has no operation.py, which says what its versions compute; write one beside them")
    for root in [kernels, shipped("kernels")] if kernels else [shipped("kernels")]:
        if (root / name / "operation.py").is_file():
            try:
                return _load(root / name)
            except UsageError:
                raise
            except Exception as error:
                raise UsageError(
                    f"the definitions in {root / name} are not what autotune/definition.py asks for ({type(error).__name__}: {error})"
                ) from error
    raise UsageError(f"operation {name!r} is not known; known: {', '.join(operation_names(kernels)) or 'none'}")


def _load(folder: Path) -> Operation:
    path = folder / "operation.py"
    declared, code = _run(path, ("TOLERANCES", "SAFE", "reference", "bytes_moved"))
    versions = [_load_version(folder, file, code) for file in sorted(folder.glob("v*.py"), key=_version_order)]
    version, parameters = declared["SAFE"]
    if version not in {v.name for v in versions}:
        raise UsageError(f"SAFE of {path} names {version}, which {folder} does not have; name one of its versions")
    reference = declared.get("REFERENCE_TEMPLATE")
    return Operation(
        name=folder.name,
        summary=_summary(declared),
        folder=folder,
        versions={v.name: v for v in versions},
        tolerances=declared["TOLERANCES"],
        reference=checked_reference(path, declared["reference"]),
        bytes_moved=checked(path, declared["bytes_moved"], int),
        reference_template=_template(folder, reference) if reference else None,
        safe=Configuration.of(version, **parameters),
        fitted_parameters=declared.get("FITTED", {}),
        shared_among=declared.get("SHARED_AMONG", {}),
        fit=checked(path, declared["fit"]) if "fit" in declared else None,
        default=checked(path, declared["default"]) if "default" in declared else None,
    )


def _load_version(folder: Path, path: Path, operation_code: bytes) -> Version:
    declared, code = _run(path, ("TEMPLATE", "PARAMETERS", "DTYPES", "IN_PLACE", "bounds", "applicable", "launch"))
    return Version(
        operation=folder.name,
        name=path.stem,
        summary=_summary(declared),
        template=_template(folder, declared["TEMPLATE"]),
        parameters=_parameters(path, declared["PARAMETERS"]),
        dtypes=tuple(declared["DTYPES"]),
        in_place=declared["IN_PLACE"],
        least_compute_capability=declared.get("LEAST_COMPUTE_CAPABILITY", (7, 5)),
        bounds=checked(path, declared["bounds"], Bounds),
        own_applicable=checked(path, declared["applicable"], Verdict),
        launch=checked(path, declared["launch"], Launch),
        code=code,
        operation_code=operation_code,
    )


def _parameters(path: Path, declared: Any) -> dict[str, tuple[Value, ...]]:
    """`declared` if it names each parameter with a sequence of whole numbers or identifiers, which the source can spell."""
    good = isinstance(declared, dict) and all(
        isinstance(name, str)
        and isinstance(values, tuple | list)
        and values
        and all(isinstance(v, int) or (isinstance(v, str) and v.isidentifier()) for v in values)
        for name, values in declared.items()
    )
    if not good or not declared:
        raise UsageError(f"PARAMETERS of {path} is {declared!r}; give each name a tuple of whole numbers or identifiers")
    return {name: tuple(values) for name, values in declared.items()}


def _run(path: Path, needed: tuple[str, ...]) -> tuple[dict[str, Any], bytes]:
    """What the definition at `path` declares, and its text."""
    try:
        code = path.read_bytes()
        declared = runpy.run_path(str(path))
    except (Exception, SystemExit) as error:
        raise UsageError(f"definition {path} could not be loaded: {type(error).__name__}: {error}") from error
    missing = [name for name in needed if name not in declared]
    if missing:
        raise UsageError(f"definition {path} lacks {', '.join(missing)}; see autotune/definition.py for what a definition declares")
    return declared, code


def _template(folder: Path, name: str) -> Path:
    places = (folder / name, shipped("templates") / folder.name / name)
    for place in places:
        if place.is_file():
            return place
    raise UsageError(f"template {name} of {folder} is missing; put it at {places[0]} or {places[1]}")


def _summary(declared: dict[str, Any]) -> str:
    return str(declared.get("__doc__") or "").strip().split("\n")[0]


def _version_order(path: Path) -> tuple[int, str]:
    digits = path.stem[1:]
    return (int(digits) if digits.isdigit() else 1 << 30, path.stem)
