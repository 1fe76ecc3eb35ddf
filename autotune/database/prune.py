"""Which trials may go, by stated rules, and taking them away. Nothing else ever deletes what was measured."""

import json
import sqlite3
import warnings
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from autotune.database.connection import Connection
from autotune.database.keys import KERNEL_TUNER

# A trial that `best` rests on stays whatever the rule.
_CANDIDATES = """
SELECT t.id FROM trials t JOIN runs u ON u.id = t.run JOIN templates s ON s.id = t.template LEFT JOIN endings e ON e.trial = t.id
WHERE t.id NOT IN (SELECT trial FROM best) AND ({condition})
"""
_KIND = "(SELECT min(kind) FROM rounds WHERE trial = {trial})"  # kinds sort by care: final, race, screen
_REPEATED = f"""
coalesce(e.outcome, t.outcome) IN ('ok', 'pruned') AND EXISTS (
    SELECT 1 FROM trials n JOIN runs v ON v.id = n.run LEFT JOIN endings f ON f.trial = n.id
    WHERE n.problem = t.problem AND n.configuration = t.configuration AND n.id > t.id AND n.template = t.template
      AND n.replayed = t.replayed AND v.device = u.device AND v.protocol = u.protocol
      AND coalesce(f.outcome, n.outcome) IN ('ok', 'pruned') AND {_KIND.format(trial="n.id")} <= {_KIND.format(trial="t.id")})
"""

# Also where nothing can be settled again, as of an operation that is not here, no trial is named that is gone.
_FORGET_RUNNER_UP = """
UPDATE best SET runner_up = NULL, runner_up_us = NULL, gap = NULL, beyond_noise = 0
WHERE runner_up IS NOT NULL AND NOT EXISTS (
    SELECT 1 FROM trials t JOIN runs u ON u.id = t.run WHERE t.problem = best.problem AND t.configuration = best.runner_up
      AND u.device = best.device AND u.protocol = best.protocol)
"""


@dataclass(frozen=True, slots=True)
class Rule:
    """One reason to let trials go: `name` for the command line, `why` as a clause, `condition` in SQL, with the ? of one parameter."""

    name: str
    why: str
    condition: str


OLDER = Rule("older-than", "made more than that many days ago", "julianday('now') - julianday(t.created) > ?")
STALE = Rule(
    "stale",
    "of a template or definition that is not the present one",
    "s.operation IN (SELECT key FROM json_each(?1)) AND s.sha NOT IN (SELECT n.value FROM json_each(?1) o, json_each(o.value) n) "
    f"AND s.version <> '{KERNEL_TUNER}'",
)
SUPERSEDED = Rule("superseded", "repeated later with at least the same care on the same device", _REPEATED)
REPLAYED = Rule("replayed", "replayed from another database", "t.replayed = 1")
FAILED = Rule("failed", "of a kernel that failed", "coalesce(e.outcome, t.outcome) NOT IN ('ok', 'pruned')")
BEHIND = Rule(
    "behind",
    "that many times as slow as the best of their problem, or slower",
    "coalesce(e.outcome, t.outcome) IN ('ok', 'pruned') AND "
    "(SELECT time_us FROM rounds WHERE trial = t.id ORDER BY kind, number DESC LIMIT 1) >= ? * (SELECT b.time_us FROM best b "
    "WHERE b.problem = t.problem AND b.device = u.device AND b.protocol = u.protocol)",
)


class Pruner(Connection):
    """The part of a database that lets measurements go."""

    def to_prune(self, rule: Rule, *parameters: object) -> set[int]:
        """The ids of the trials that `rule` lets go. OLDER takes the days, STALE what `present_templates` gives."""
        return {row["id"] for row in self.select(_CANDIDATES.format(condition=rule.condition), parameters)}

    def touched_by(self, trials: Iterable[int]) -> set[tuple[int, int]]:
        """The devices and problems, by their ids, that `trials` are of: without them, what follows from the others is to be said again."""
        rows = self.select(
            "SELECT DISTINCT u.device, t.problem FROM trials t JOIN runs u ON u.id = t.run WHERE t.id IN (SELECT value FROM json_each(?))",
            (json.dumps(sorted(trials)),),
        )
        return {(row["device"], row["problem"]) for row in rows}

    def still_blocked(self, trials: Iterable[int]) -> int:
        """How many configurations are blocked where `trials` are of them: those are not tried again once the trials are gone."""
        (row,) = self.select(
            "SELECT count(DISTINCT t.configuration) AS count FROM trials t JOIN runs u ON u.id = t.run JOIN problems p ON p.id = t.problem "
            "JOIN blocked b ON b.device = u.device AND b.configuration = t.configuration AND b.dtype = p.dtype "
            "AND b.template = t.template AND (b.problem IS NULL OR b.problem = t.problem) AND b.reason <> '' "
            "WHERE t.id IN (SELECT value FROM json_each(?))",
            (json.dumps(sorted(trials)),),
        )
        return int(row["count"])

    def prune(self, trials: Iterable[int]) -> None:
        """Delete trials with their rounds and endings; `give_back_space` makes the file smaller by them."""
        ids = json.dumps(sorted(trials))
        with self.write() as connection:
            for table, column in (("rounds", "trial"), ("endings", "trial"), ("trials", "id")):
                connection.execute(f"DELETE FROM {table} WHERE {column} IN (SELECT value FROM json_each(?))", (ids,))
            connection.execute(_FORGET_RUNNER_UP)

    def give_back_space(self) -> None:
        """Give the space of what was deleted back to the file system.

        Where the disk has no room for that, which takes a copy of the database, it is a warning, and the next call gives it back.
        """
        if not self.select("PRAGMA freelist_count")[0]["freelist_count"]:
            return
        try:
            self._connection.execute("VACUUM")
        except sqlite3.OperationalError as error:
            warnings.warn(
                f"what was deleted is gone from database {self.path}, but the space it took could not be given back ({error}); the next "
                "prune gives it back where the disk has room for a copy of the database and no other process uses it",
                stacklevel=2,
            )
        except sqlite3.Error:
            with self._explained():
                raise


def present_templates(shas: Mapping[str, Collection[str]]) -> str:
    """The parameter of STALE: the hashes of the present templates by operation. Trials of other operations are never stale."""
    return json.dumps({operation: sorted(found) for operation, found in shas.items()})
