"""From a template to the CUDA source of instances, and the identity of all that their results depend on.

A template `vK.cu` defines one device function template whose arguments are the element type and then the version's
parameters, in declared order. `render` gives each instance an `extern "C"` entry through the INSTANCE macro of
`templates/common.cuh`, so that one translation unit can hold many instances and each is found under its own symbol.

How an instance is launched and what it is checked against is said by its definition and not by its template. So what `read` gives, and
what is hashed, is the template and then that part of the definition, which a compiler skips.
"""

import hashlib
import re
import stat
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import takewhile
from pathlib import Path

from autotune.catalogue import load, shipped
from autotune.configuration import Configuration
from autotune.definition import Version
from autotune.element import element
from autotune.errors import UsageError
from autotune.operation import Operation
from autotune.reached import reached

# A comment; or what is no comment though "//" may be inside: a raw string, a number with its separators, a string or character literal.
# Each begins with a character that is rare, so that the many others are passed over at once.
_TOKEN = re.compile(
    r"""
      R(?:(?<=\bR)|(?<=\b[uUL]R)|(?<=\bu8R))"(?P<mark>[^()\\\s]*)\(.*?\)(?P=mark)"
    | [0-9](?<=\b[0-9])[0-9A-Za-z_.]*(?:'[0-9A-Za-z][0-9A-Za-z_.]*)+
    | "(?:\\.|[^"\\\n])*" | '(?:\\.|[^'\\\n])*'
    | //[^\n\\]*(?:\\(?:[^\S\n]*\n)?[^\n\\]*)* | /\*.*?\*/
    """,
    re.DOTALL | re.VERBOSE,
)
_BROKEN_MARK = re.compile(r"[/*]\\[^\S\n]*\n")  # a comment may begin or end here, or not, as a compiler joins lines
_BLANKS = r"(?:[ \t]|/\*[^\n]*?\*/)*"
_INCLUDE = re.compile(rf'^[ \t]*#{_BLANKS}include{_BLANKS}"([^"\n]+)"[ \t]*(?=$|//|/\*)', re.MULTILINE)

# What decides about a launch and its check. Of what else is declared, some says where a kernel is used, such as `applicable`; the rest is
# in a configuration, and so in its trials.
_OF_VERSION = ("IN_PLACE", "bounds", "launch")
_OF_OPERATION = ("TOLERANCES", "reference")


@dataclass(frozen=True, slots=True)
class Source:
    """What results of a version depend on: its template with includes in place, and what its definition adds.

    `sha` is what tells it from others. It changes with the code and not with comments, file names, or how wide a gap is; a gap where none
    was is other code, for no compiler is asked.
    """

    text: str
    sha: str


def read(version: Version) -> Source:
    """What the results of `version` depend on, as its definition was when it was loaded. Raises UsageError as `expanded` does."""
    return _source(expanded(version.template), version.code, version.operation_code)


def templates(operation: Operation) -> list[tuple[str, Source]]:
    """What `read` gives for every version of `operation`, with the version's name."""
    return [(name, read(version)) for name, version in operation.versions.items()]


def defined(version: Version) -> str:
    """What the definition of `version` adds to its template, as a text that a CUDA compiler skips (see `autotune.reached`)."""
    return _defined(version.code, version.operation_code)


def definitions(operation: Operation) -> dict[str, str]:
    """What the definition of each version of `operation` adds, by its name: the same in two processes that have loaded the same."""
    return {name: defined(version) for name, version in operation.versions.items()}


def loaded_alike(name: str, kernels: Path, known: Mapping[str, str]) -> Operation:
    """The operation that `catalogue.load` finds; UsageError unless its `definitions` are the `known` ones.

    What launches kernels is a process of its own, started again after each crash; results are stored under what its parent has loaded.
    """
    operation = load(name, kernels)
    if not known.items() <= definitions(operation).items():
        raise UsageError(f"the definitions in {operation.folder} were changed while they were in use; run the command again")
    return operation


@lru_cache(maxsize=128)
def expanded(template: Path) -> str:
    """The text at `template` with each `#include "…"` replaced by that file, once, however often it is named.

    Files are looked for beside the template and in `templates/`. Raises UsageError when one is missing, or is no text in UTF-8.
    """
    return _expand(template, seen={_file(template)})


def identity(text: str) -> str:
    """The hash of CUDA source without comments, line directives, empty lines and more than one blank between words.

    >>> identity("int a;  // first") == identity("int  a;")
    True
    """
    if _BROKEN_MARK.search(text):
        return hashlib.sha256(text.encode()).hexdigest()
    code = _TOKEN.sub(_kept, text)
    lines = (" ".join(line.split()) for line in code.splitlines() if not line.lstrip().startswith("#line"))
    return hashlib.sha256("\n".join(line for line in lines if line).encode()).hexdigest()


def _kept(match: re.Match[str]) -> str:
    """What is left of a token. A literal keeps its spacing; so does a comment that goes on in the next line: not all compilers agree."""
    token = match[0]
    if token.startswith("/*") or (token.startswith("//") and "\n" not in token):
        return " "
    return token if token == " ".join(token.split()) else "\0" + token.encode().hex()


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
    lines.append(expanded(version.template))
    lines.append('#line 1 "instances"')
    for configuration in configurations:
        bounds = version.bounds(configuration)
        arguments = ", ".join([kind.cuda, *(str(value) for _, value in configuration.parameters)])
        lines.append(
            f"INSTANCE({symbol(version, configuration, dtype)}, {kind.cuda}, {bounds.threads}, {bounds.blocks_per_sm}, {bounds.cluster}, "
            f"{version.operation}_{version.name}<{arguments}>)"
        )
    return "\n".join(lines) + "\n"


@lru_cache(maxsize=128)  # asked for every instance, problem and row of a database
def _source(template: str, code: bytes, operation_code: bytes) -> Source:
    text = template + _defined(code, operation_code)
    return Source(text, identity(text))


def _defined(code: bytes, operation_code: bytes) -> str:
    lines = (
        "\n#if 0  // not compiled: what results depend on besides",
        f"version  // {', '.join(_OF_VERSION)}, and what they reach",
        reached(code, _OF_VERSION),
        f"operation  // {', '.join(_OF_OPERATION)}, and what they reach",
        reached(operation_code, _OF_OPERATION),
        "#endif\n",
    )
    return "\n".join(lines)


def _expand(path: Path, seen: set[tuple[int, int] | None]) -> str:
    text = _read(path)
    name = f"{path.parent.name}/{path.name}"

    def replaced(match: re.Match[str]) -> str:
        before = takewhile(lambda token: token.start() < match.start(), _TOKEN.finditer(text))
        if any(match.start() < token.end() for token in before):  # in a comment, or in a literal of several lines
            return match[0]
        for folder in (path.parent, shipped("templates")):
            included = folder / match[1]
            file = _file(included)
            if file in seen:
                return ""
            if file:
                seen.add(file)
                after = text.count("\n", 0, match.start()) + 2
                return _expand(included, seen) + f'\n#line {after} "{name}"'
        raise UsageError(f'template {path} includes "{match[1]}", which is neither beside it nor in {shipped("templates")}')

    return f'#line 1 "{name}"\n' + _INCLUDE.sub(replaced, text)


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")  # with a byte order mark in front or without
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise UsageError(f"template {path} is not UTF-8: byte 0x{error.object[error.start]:02x} in line {line}; save it as UTF-8") from None
    except OSError as error:
        raise UsageError(f"template {path} cannot be read ({error.strerror}); make it readable") from None


def _file(path: Path) -> tuple[int, int] | None:
    """Which file it is, by whatever path; None when there is none. Told by one question to the system: a dispatcher waits for this."""
    try:
        found = path.stat()
    except OSError:
        return None
    return (found.st_dev, found.st_ino) if stat.S_ISREG(found.st_mode) else None
