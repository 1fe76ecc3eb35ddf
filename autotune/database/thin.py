"""Making a database small enough to travel: what may go, beside whole trials, without a change of what it decides.

For copies that are made to be shipped. What a thinned database lacks is in the one it was made from, and its manifest says so.
"""

import json
from collections.abc import Iterable

from autotune.database.connection import Connection
from autotune.database.packing import pack_tightly, unpack

_LISTED = "IN (SELECT value FROM json_each(?))"

# What refers to each table; in this order, so that a row goes before what it refers to.
_USERS = {
    "instances": (("trials", "instance"),),
    "configurations": (
        *(("instances", "configuration"), ("trials", "configuration"), ("best", "configuration"), ("best", "runner_up")),
        *(("pins", "configuration"), ("blocked", "configuration"), ("misses", "configuration")),
    ),
    "templates": (("instances", "template"), ("trials", "template"), ("best", "template"), ("blocked", "template")),
}

# Indexes that only a database of a million trials needs; none of them holds anything that is not in a table.
_LARGE_ONLY = ("rounds_by_care", "trials_by_problem", "instances_with_a_binary", "copies_by_problem", "best_by_trial")


class Thinner(Connection):
    """The part of a database that makes a copy of it small."""

    def thin_rounds(self, deciding: Iterable[int]) -> None:
        """Keep of each trial only the round that carries its time, the last of the most careful kind; all of that kind for `deciding`."""
        with self.write() as connection:
            most_careful = "kind = (SELECT min(n.kind) FROM rounds n WHERE n.trial = rounds.trial)"  # they sort: final, race, screen
            connection.execute(
                f"DELETE FROM rounds WHERE NOT (trial {_LISTED} AND {most_careful}) AND id <> "
                "(SELECT n.id FROM rounds n WHERE n.trial = rounds.trial ORDER BY n.kind, n.number DESC LIMIT 1)",
                (json.dumps(sorted(deciding)),),
            )

    def forget_earlier_finals(self) -> None:
        """Keep of each problem only the final rounds of the latest run that has any: those of two runs were not taken side by side."""
        with self.write() as connection:
            connection.execute(
                "DELETE FROM rounds WHERE kind = 'final' AND trial IN (SELECT t.id FROM trials t WHERE t.run < "
                "(SELECT max(n.run) FROM trials n JOIN rounds r ON r.trial = n.id AND r.kind = 'final' WHERE n.problem = t.problem))"
            )

    def forget_earlier_copies(self) -> None:
        """Keep of each problem only the times of a copy that the latest run took."""
        with self.write() as connection:
            connection.execute("DELETE FROM copies WHERE run < (SELECT max(n.run) FROM copies n WHERE n.problem = copies.problem)")

    def forget_problems(self, problems: Iterable[int]) -> None:
        """Delete the problems with these ids, and all that was measured or decided of them."""
        ids = (json.dumps(sorted(problems)),)
        with self.write() as connection:
            for table in ("misses", "best", "blocked", "copies"):
                connection.execute(f"DELETE FROM {table} WHERE problem {_LISTED}", ids)
            for table in ("rounds", "endings"):
                connection.execute(f"DELETE FROM {table} WHERE trial IN (SELECT id FROM trials WHERE problem {_LISTED})", ids)
            connection.execute(f"DELETE FROM trials WHERE problem {_LISTED}", ids)
            connection.execute(f"DELETE FROM problems WHERE id {_LISTED}", ids)

    def forget_unused(self) -> None:
        """Delete instances without a binary, configurations and templates that nothing refers to, and binaries of no instance."""
        with self.write() as connection:
            for table, users in _USERS.items():
                unused = " AND ".join(f"id NOT IN (SELECT {column} FROM {user} WHERE {column} IS NOT NULL)" for user, column in users)
                bare = " AND binary_sha IS NULL" if table == "instances" else ""
                connection.execute(f"DELETE FROM {table} WHERE {unused}{bare}")
            connection.execute("DELETE FROM binaries WHERE sha NOT IN (SELECT binary_sha FROM instances WHERE binary_sha IS NOT NULL)")

    def pack_binaries(self) -> None:
        """Compress all binaries as far as they go."""
        rows = self.select("SELECT sha, kind, arch, bytes, packed FROM binaries")
        tight = [tuple((row | {"packed": pack_tightly(unpack(row["packed"]))}).values()) for row in rows]
        with self.write() as connection:
            connection.execute("PRAGMA defer_foreign_keys = ON")
            connection.execute("DELETE FROM binaries")
            connection.executemany("INSERT INTO binaries (sha, kind, arch, bytes, packed) VALUES (?, ?, ?, ?, ?)", tight)

    def drop_indexes(self) -> None:
        """Drop the indexes that a small file does without. Importing it adds rows to tables that have them."""
        with self.write() as connection:
            for name in _LARGE_ONLY:
                connection.execute(f"DROP INDEX IF EXISTS {name}")
