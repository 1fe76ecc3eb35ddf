"""A configuration: one version of a kernel with a value for each of its parameters."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

Value = int | str


@dataclass(frozen=True, slots=True, order=True)
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
        """The configuration whose `to_json` is `text`."""
        parameters: Mapping[str, Value] = json.loads(text)
        return cls(version, tuple(parameters.items()))

    def __getitem__(self, name: str) -> Value:
        for key, value in self.parameters:
            if key == name:
                return value
        raise KeyError(name)

    def integer(self, name: str) -> int:
        """The value of a parameter that counts something."""
        value = self[name]
        assert isinstance(value, int), f"{name} of {self} is not a number"
        return value

    def to_json(self) -> str:
        """The parameters as a JSON object, in declared order: what the database stores."""
        return json.dumps(dict(self.parameters), separators=(", ", ": "))

    def __str__(self) -> str:
        return f"{self.version} " + ", ".join(f"{name} {value}" for name, value in self.parameters)
