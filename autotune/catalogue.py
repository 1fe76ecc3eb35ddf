"""Finds operations and loads their definitions: the shipped ones, and a user's own folder by the same path.

    <kernels>/<operation>/operation.py     what is computed (see `autotune.operation`)
    <kernels>/<operation>/v0.py, v1.py …   one version each, named by v and a number (see `autotune.definition`)
    <templates>/<operation>/*.cu           their CUDA source, unless it lies beside the definition

Definitions are loaded from their path and never imported as modules, so a folder called `kernels` shadows nobody's package.
"""

import re
import sys
from collections.abc import Mapping
from functools import cache, lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any

from autotune import declarations
from autotune.declared import checked, checked_bytes, checked_fit, checked_proposals, checked_reference
from autotune.definition import Bounds, Launch, Verdict, Version
from autotune.errors import UsageError
from autotune.operation import Operation, Tolerance


@cache
def shipped(folder: str) -> Path:
    """The shipped folder `kernels`, `templates` or `results`: inside the installed package, else beside it in a checkout."""
    package = Path(__file__).resolve().parent
    inside = package / folder
    return inside if inside.is_dir() else package.parent / folder


OPERATIONS = 'give the name of an operation, such as "softmax"'


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
    known = ", ".join(operation_names(kernels)) or "none"
    more = (
        f"{kernels} has no folder {name} with an operation.py"
        if kernels
        else "--kernels DIR, or kernels= in Python, adds a folder of your own"
    )
    raise UsageError(f"operation {name!r} is not known; known: {known}; {more}")


def _load(folder: Path) -> Operation:
    path = folder / "operation.py"
    if not re.fullmatch(r"[A-Za-z_]\w*", folder.name, re.ASCII):
        raise UsageError(f"the folder {folder} is named {folder.name!r}, which a kernel's name cannot begin with; name it by an identifier")
    declared, code = _run(path, ("TOLERANCES", "SAFE", "reference", "bytes_moved"))
    tolerances = declarations.tolerances(path, declared["TOLERANCES"])
    loaded = [_load_version(folder, file, code, tolerances) for file in _version_files(folder)]
    versions = {version.name: version for version in loaded}
    declarations.countable(folder, versions)
    reference = declared.get("REFERENCE_TEMPLATE")
    fit, default = declared.get("fit"), declared.get("default")
    return Operation(
        name=folder.name,
        summary=_summary(declared),
        folder=folder,
        versions=versions,
        tolerances=tolerances,
        reference=checked_reference(path, declarations.function(path, "reference", declared["reference"])),
        bytes_moved=checked_bytes(path, declarations.function(path, "bytes_moved", declared["bytes_moved"])),
        reference_template=None if reference is None else _template(path, "REFERENCE_TEMPLATE", reference),
        safe=declarations.safe(path, declared["SAFE"], versions),
        fitted_parameters=declarations.fitted(path, declared.get("FITTED", {})),
        shared_among=declarations.shared_among(path, declared.get("SHARED_AMONG", {})),
        fit=None if fit is None else checked_fit(path, declarations.function(path, "fit", fit)),
        default=None if default is None else checked_proposals(path, declarations.function(path, "default", default)),
    )


def _load_version(folder: Path, path: Path, operation_code: bytes, tolerances: Mapping[str, Tolerance]) -> Version:
    declared, code = _run(path, ("TEMPLATE", "PARAMETERS", "DTYPES", "IN_PLACE", "bounds", "applicable", "launch"))
    return Version(
        operation=folder.name,
        name=path.stem,
        summary=_summary(declared),
        template=_template(path, "TEMPLATE", declared["TEMPLATE"]),
        parameters=declarations.parameters(path, declared["PARAMETERS"]),
        dtypes=declarations.dtypes(path, declared["DTYPES"], tolerances),
        in_place=declarations.flag(path, "IN_PLACE", declared["IN_PLACE"]),
        least_compute_capability=declarations.compute_capability(path, declared.get("LEAST_COMPUTE_CAPABILITY", (7, 5))),
        bounds=checked(path, declarations.function(path, "bounds", declared["bounds"]), Bounds),
        own_applicable=checked(path, declarations.function(path, "applicable", declared["applicable"]), Verdict),
        launch=checked(path, declarations.function(path, "launch", declared["launch"]), Launch),
        code=code,
        operation_code=operation_code,
    )


def _version_files(folder: Path) -> list[Path]:
    """The definitions of versions in `folder`, in the order of their numbers. Raises UsageError where one is named like none of them."""
    files = list(folder.glob("v*.py"))
    for file in files:
        if not re.fullmatch("v[0-9]+", file.stem):
            raise UsageError(
                f"{file} is named like no version; name it v and a number, such as v3.py, or begin its name with another letter"
            )
    return sorted(files, key=lambda file: (int(file.stem[1:]), file.stem))


def _run(path: Path, needed: tuple[str, ...]) -> tuple[dict[str, Any], bytes]:
    """What the definition at `path` declares, and its text, which is read once: it may be edited meanwhile.

    What it prints goes to standard error, for a command's standard output may be a program's input.
    """
    module = ModuleType(f"definition {path}")
    module.__dict__.update(__file__=str(path), print=_to_stderr)
    try:
        code = path.read_bytes()
        sys.modules[module.__name__] = module  # where dataclasses look for what annotations name
        exec(compile(code, str(path), "exec", dont_inherit=True), module.__dict__)
    except (Exception, SystemExit) as error:
        raise UsageError(f"definition {path} could not be loaded: {type(error).__name__}: {error}") from error
    finally:
        sys.modules.pop(module.__name__, None)
    declared = module.__dict__
    missing = [name for name in needed if name not in declared]
    if missing:
        raise UsageError(f"definition {path} lacks {', '.join(missing)}; see autotune/definition.py for what a definition declares")
    return declared, code


def _to_stderr(*values: object, **options: Any) -> None:
    print(*values, **{**options, "file": options.get("file") or sys.stderr})


def _template(path: Path, declared_as: str, declared: Any) -> Path:
    folder, name = path.parent, declarations.file_name(path, declared_as, declared)
    places = (folder / name, shipped("templates") / folder.name / name)
    for place in places:
        if place.is_file():
            return place
    raise UsageError(f"template {name} of {folder} is missing; put it at {places[0]} or {places[1]}")


def _summary(declared: dict[str, Any]) -> str:
    return str(declared.get("__doc__") or "").strip().split("\n")[0]
