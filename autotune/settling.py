"""From the choice for a problem to what is stored of it, and back: which configuration, how sure, and how far its space was searched."""

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self

from autotune.choice import Choice
from autotune.configuration import Configuration
from autotune.database import Settled
from autotune.known import Known

_EXTENT = re.compile(r"(?P<space>[^ ]*)(?: (?P<tried>\d+) tried, gain below (?P<gain>\d+(?:\.\d+)?(?:e-\d+)?))?")


@dataclass(frozen=True, slots=True)
class Extent:
    """How far a space was searched. `space` is its hash; with `tried` of its configurations known, less than `gain` was to be gained.

    The gain is stored, for it cannot be worked out anew: it hangs on what other problems told by then, and on times from before the race.

    >>> Extent.read(str(Extent("5eed", 48, 0.2))), Extent.read(str(Extent("5eed"))), Extent.read("whatever else")
    (Extent(space='5eed', tried=48, gain=0.2), Extent(space='5eed', tried=0, gain=None), Extent(space='', tried=0, gain=None))
    """

    space: str
    tried: int = 0
    gain: float | None = None

    def __str__(self) -> str:
        return self.space if self.gain is None else f"{self.space} {self.tried} tried, gain below {self.gain}"

    @classmethod
    def read(cls, text: str) -> Self:
        """What `str` made of one; of any other text, the extent of no space."""
        found = _EXTENT.fullmatch(text)
        if found is None:
            return cls("")
        return cls(found["space"], int(found["tried"]), float(found["gain"])) if found["gain"] else cls(found["space"])

    @classmethod
    def of(cls, configurations: Sequence[Configuration], template_shas: Mapping[str, str]) -> Self:
        """Of a space of which nothing is known yet; the hash is also of the present template and definition of each version in it."""
        lines = sorted(f"{c} {template_shas[c.version]}" for c in configurations)
        return cls(hashlib.sha256("\n".join(lines).encode()).hexdigest())


def settled(choice: Choice, known: Known, bytes_moved: int, copy_us: float | None, extent: Extent, *, confirmed: bool) -> Settled:
    """What is stored of `choice`, made by what is `known`."""
    return Settled(
        configuration=choice.configuration,
        trial_id=known.ids[choice.configuration],
        time_us=choice.time_us,
        ci_low_us=choice.low_us,
        ci_high_us=choice.high_us,
        spread=choice.spread,
        tried=len({t.configuration for t in known.evidence.trials}),
        bytes_moved=bytes_moved,
        state="stale" if known.evidence.sentinels else "confirmed" if confirmed else "provisional",
        runner_up=choice.runner_up,
        runner_up_us=choice.runner_up_us,
        gap=choice.gap,
        beyond_noise=choice.beyond_noise,
        copy_us=copy_us,
        space_sha=str(extent),
    )


def recalled(stored: Settled) -> Choice:
    """The choice that was stored."""
    return Choice(
        stored.configuration,
        stored.time_us,
        stored.ci_low_us,
        stored.ci_high_us,
        stored.spread,
        stored.runner_up,
        stored.runner_up_us,
        stored.beyond_noise,
    )
