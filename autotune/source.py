"""From a template to the CUDA source of instances, and a template's identity.

A template `vK.cu` defines one device function template whose arguments are the element type and then the version's
parameters, in declared order. `render` gives each instance an `extern "C"` entry through the INSTANCE macro of
`templates/common.cuh`, so that one translation unit can hold many instances and each is found under its own symbol.
"""

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from autotune.catalogue import shipped
from autotune.configuration import Configuration
from autotune.definition import Version
from autotune.element import element
from autotune.errors import UsageError
from autotune.operation import Operation

# A string or character literal, or a comment: literals are matched so that a "//" inside one is left alone.
_TOKEN = re.compile(r'"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'|//[^\n]*|/\*.*?\*/', re.DOTALL)
_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]+"([^"]+)"[ \t]*$', re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Source:
    """A template with its includes in place. `sha` changes with the code and not with comments, spacing or file names."""

    text: str
    sha: str


@lru_cache(maxsize=128)
def read(template: Path) -> Source:
    """The template at `template` with each `#include "…"` replaced by that file, once, however often it is named.

    Files are looked for beside the template and in `templates/`. Raises UsageError when one is missing.
    """
    text = _expand(template, seen=set())
    return Source(text, identity(text))


def templates(operation: Operation) -> list[tuple[str, Source]]:
    """The present template of every version of `operation`, with the version's name."""
    return [(name, read(version.template)) for name, version in operation.versions.items()]


def identity(text: str) -> str:
    """The hash of CUDA source without comments, line directives and spacing.

    >>> identity("int a;  // first") == identity("int  a;")
    True
    """
    code = _TOKEN.sub(lambda match: " " if match[0].startswith("/") else match[0], text)
    lines = (" ".join(line.split()) for line in code.splitlines() if not line.lstrip().startswith("#line"))
    return hashlib.sha256("\n".join(line for line in lines if line).encode()).hexdigest()


def symbol(version: Version, configuration: Configuration, dtype: str) -> str:
    """The C name of an instance.

    It tells a profiler's user what runs: `softmax_v3_float32_block256_vector4_unroll2`.
    """
    values = "".join(f"_{name}{value}" for name, value in configuration.parameters)
    return f"{version.operation}_{version.name}_{dtype}{values}"


def render(version: Version, configurations: Iterable[Configuration], dtype: str) -> str:
    """One translation unit with an instance of `version` for each of `configurations`, each under its `symbol`."""
    kind = element(dtype)
    lines = [f"#include <{kind.header}>"] if kind.header else []
    lines.append(read(version.template).text)
    lines.append('#line 1 "instances"')
    for configuration in configurations:
        bounds = version.bounds(configuration)
        arguments = ", ".join([kind.cuda, *(str(value) for _, value in configuration.parameters)])
        lines.append(
            f"INSTANCE({symbol(version, configuration, dtype)}, {kind.cuda}, {bounds.threads}, {bounds.blocks_per_sm}, {bounds.cluster}, "
            f"{version.operation}_{version.name}<{arguments}>)"
        )
    return "\n".join(lines) + "\n"


def _expand(path: Path, seen: set[Path]) -> str:
    seen.add(path.resolve())
    text = path.read_text(encoding="utf-8")
    name = f"{path.parent.name}/{path.name}"

    def included(match: re.Match[str]) -> str:
        for folder in (path.parent, shipped("templates")):
            file = folder / match[1]
            if file.is_file():
                if file.resolve() in seen:
                    return ""
                after = text.count("\n", 0, match.start()) + 2
                return _expand(file, seen) + f'\n#line {after} "{name}"'
        raise UsageError(f'template {path} includes "{match[1]}", which is neither beside it nor in {shipped("templates")}')

    return f'#line 1 "{name}"\n' + _INCLUDE.sub(included, text)
