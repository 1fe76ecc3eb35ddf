"""The plans that a dispatcher has made, in a table per type of array. Reading a table takes no lock."""

import threading
from collections.abc import Callable
from typing import Any

from autotune.dispatch.plan import Plan

Table = dict[Any, Plan]

# Enough for any model's shapes. Beyond it a table is emptied, so that a stream of ever new shapes does not eat the memory.
MOST_PLANS = 4096


class Plans:
    """All tables of one dispatcher, and the counts of the plans that were dropped from them."""

    def __init__(self) -> None:
        self.made = 0
        self._tables: list[Table] = []
        self._retired: dict[str, int] = {}
        self._generation = 0
        self._lock = threading.Lock()
        self._flights: dict[tuple[int, Any], threading.Lock] = {}

    def table(self) -> Table:
        """A new table. It is emptied at times, but never replaced: whoever reads it may hold on to it."""
        with self._lock:
            self._tables.append({})
            return self._tables[-1]

    def get(self, table: Table, key: Any, make: Callable[[], tuple[Plan, bool]]) -> Plan:
        """The plan under `key`, made (and kept where `make` says so) if there is none; threads that want the same one wait for it."""
        flight = (id(table), key)
        generation = self._generation
        try:
            with self._flights.setdefault(flight, threading.Lock()):
                plan = table.get(key)
                if plan is None:
                    plan, keep = make()
                    if keep:
                        self._keep(table, key, plan, generation)
        finally:
            self._flights.pop(flight, None)
        return plan

    def _keep(self, table: Table, key: Any, plan: Plan, generation: int) -> None:
        with self._lock:
            self.made += 1
            if generation != self._generation:
                return  # decided by what a reload has thrown away since
            if len(table) >= MOST_PLANS:
                self._empty(table)
            table[key] = plan

    def _empty(self, table: Table) -> None:
        for plan in table.values():
            plan.live = False
            self._retired[plan.tier] = self._retired.get(plan.tier, 0) + plan.hits
        table.clear()

    def drop(self) -> None:
        """Forget all plans, and those being made just now too."""
        with self._lock:
            self._generation += 1
            for table in self._tables:
                self._empty(table)

    def forget_threads(self) -> None:
        """Forget all plans in a process that was forked, whose parent's threads may have held the locks."""
        self._lock, self._flights = threading.Lock(), {}
        for table in self._tables:
            self._empty(table)

    def all(self) -> list[Plan]:
        """Every plan there is."""
        with self._lock:
            return [plan for table in self._tables for plan in table.values()]

    def hits(self) -> dict[str, int]:
        """Calls per tier so far, by plans that are gone too."""
        hits = dict(self._retired)
        for plan in self.all():
            hits[plan.tier] = hits.get(plan.tier, 0) + plan.hits
        return hits
