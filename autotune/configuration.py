"""A configuration: one version of a kernel with a value for each of its parameters."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from math import isfinite
from typing import Self

from autotune.errors import UsageError, shortened

Value = int | str
VERSION = "version"  # what the version is called where it stands among parameters, which may therefore not be called so
MOST_SHOWN = 60  # characters of what is no configuration


@dataclass(frozen=True, slots=True)
class Configuration:
    """A version's name and its parameters, in the order in which the version declares them.

    >>> c = Configuration.of("v3", block=256, vector=4, unroll=2)
    >>> c["block"], str(c)
    (256, 'v3 block 256, vector 4, unroll 2')
    """

    version: str
    parameters: tuple[tuple[str, Value], ...]

    @classmethod
    def of(cls, version: str, /, **parameters: Value) -> Self:
        return cls(version, tuple(parameters.items()))

    @classmethod
    def from_json(cls, version: str, text: str) -> Self:
        """The configuration whose `to_json` is `text`. Raises UsageError where that is no object of texts and finite 64-bit numbers."""
        return cls(version, _parsed(text))

    def __lt__(self, other: Self) -> bool:
        """By version, then by parameters as declared; where a value is a number here and a name there, numbers come first."""
        try:
            return (self.version, self.parameters) < (other.version, other.parameters)
        except TypeError:
            return _typed(self) < _typed(other)

    def __getitem__(self, name: str) -> Value:
        for key, value in self.parameters:
            if key == name:
                return value
        raise KeyError(name)

    def integer(self, name: str) -> int:
        """The value of a parameter that counts something."""
        for key, value in self.parameters:  # not by `self[name]`: the dispatcher waits for dozens of these
            if key == name:
                assert isinstance(value, int), f"{name} of {self} is not a number"
                return value
        raise KeyError(name)

    def to_json(self) -> str:
        """The parameters as a JSON object, in declared order: what the database stores."""
        return json.dumps(dict(self.parameters), separators=(", ", ": "))

    def __str__(self) -> str:
        return f"{self.version} " + ", ".join(f"{name} {value}" for name, value in self.parameters)


def _typed(configuration: Configuration) -> tuple[str, list[tuple[str, bool, Value]]]:
    return configuration.version, [(name, isinstance(value, str), value) for name, value in configuration.parameters]


@lru_cache(maxsize=4096)  # a database says the same for every problem
def _parsed(text: str) -> tuple[tuple[str, Value], ...]:
    try:
        parameters: Mapping[str, Value] = json.loads(text)
        if isinstance(parameters, dict) and all(map(_is_value, parameters.values())):
            return tuple(parameters.items())
    except (ValueError, RecursionError):  # of what is no JSON, and of brackets without end
        pass
    raise UsageError(f"parameters {shortened(text, MOST_SHOWN)!r} are not a JSON object of texts and finite numbers of at most 64 bits")


def _is_value(value: object) -> bool:
    if isinstance(value, float):
        return isfinite(value)
    return isinstance(value, str) or (isinstance(value, int) and -(1 << 63) <= value < 1 << 63)
