"""How a sweep shows itself: a bar on a terminal, plain lines elsewhere, JSON lines for programs."""

import json
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import click

from autotune.cli.hints import hint
from autotune.cli.output import counted, microseconds, percent
from autotune.cli.summary import built, conclusion, describe, failure, kinds, outcomes
from autotune.configuration import Configuration
from autotune.device import Device
from autotune.finite import finite
from autotune.selector.training import Trained
from autotune.spaces import spoken
from autotune.trial import Outcome
from autotune.watch import Attempt, ProblemSummary, Summary, Watcher

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.progress import Progress

SHOWN_FAILURES = 3


def watcher(*, as_json: bool) -> Watcher:
    """The watcher that suits where standard output goes."""
    if as_json:
        return JsonWatcher()
    return BarWatcher() if sys.stdout.isatty() else PlainWatcher()


class PlainWatcher(Watcher):
    """One line per step that matters; each says so when its times are recorded ones."""

    def __init__(self) -> None:
        self._note = ""
        self._problems = 0
        self._started = time.monotonic()

    def began(self, problems: int, device: Device, *, replayed: bool) -> None:
        self._problems = problems
        self._note = f" (recorded on {device.name})" if replayed else ""
        self._say(f"tuning {counted(problems, 'problem')} on {device.name}")

    def building(self, done: int, total: int, failed: Mapping[Configuration, str]) -> None:
        if done == total and not self._note:
            self._say(f"built {built(total, failed)}")

    def waiting(self, why: str, seconds: float) -> None:
        self._say(f"{why}; waiting up to {seconds:.0f} s for room")

    def settled(self, summary: ProblemSummary) -> None:
        if summary.stale and summary.new_trials:
            self._say(
                f"{summary.problem}: what was measured of {counted(summary.stale, 'configuration')} before no longer counts: "
                "the kernel, its definition, its compiler or the driver has changed"
            )
        failed = kinds(summary)
        for count, example, whose in failed[:SHOWN_FAILURES]:
            self._say(f"{summary.problem}: {failure(count, example, whose)}")
        if (more := len(failed) - SHOWN_FAILURES) > 0:
            self._say(f"{summary.problem}: {more} more ways to fail; see `{hint('inspect', 'trials')}`")
        if summary.late_s is not None:
            took = f"setting it up took {summary.late_s:.2g} s"
            self._say(f"{summary.problem}: {took}, which left no time to try anything; give more --seconds")
        if summary.impossible:
            self._say(f"{summary.problem}: {spoken(summary.impossible)}")
        self._say(describe(summary, recorded=bool(self._note)))

    def learnt(self, trained: Trained) -> None:
        self._say(f"selector for {trained.dtype}: {trained.model}; {trained.why}")

    def ended(self, summary: Summary) -> None:
        if summary.interrupted:
            where = f" in {summary.interrupted_in}" if summary.interrupted_in else ""
            self._say(f"interrupted{where}; everything measured so far is stored, and the same command goes on from here")
        counts = f" ({outcomes(summary.outcomes)})" if summary.new_trials else ""
        new = f"{counted(summary.new_trials, 'new trial')}{counts}{_again(summary.raced_again)} in {time.monotonic() - self._started:.1f} s"
        self._say(f"{new}; {conclusion(summary, self._problems)}")

    def _say(self, line: str) -> None:
        click.echo(line + self._note)


def _again(count: int) -> str:
    return f" and {count} more of known configurations that raced again" if count else ""


class BarWatcher(PlainWatcher):
    """A progress bar with time left, best so far, share of copy and counts by outcome, above which the plain lines pass."""

    def __init__(self) -> None:
        from rich.console import Console

        super().__init__()
        self._console = Console()
        self._progress = _two_lines(self._console)
        self._place = 0
        self._tuning_since = self._started
        self._builds = self._progress.add_task("building", total=None, best="", visible=False)
        self._trials = self._progress.add_task("", total=None, best="", visible=False)

    def began(self, problems: int, device: Device, *, replayed: bool) -> None:
        super().began(problems, device, replayed=replayed)
        self._progress.start()

    def building(self, done: int, total: int, failed: Mapping[Configuration, str]) -> None:
        self._progress.update(self._builds, completed=done, total=total, visible=done < total)
        self._tuning_since = time.monotonic()
        super().building(done, total, failed)

    def problem(self, summary: ProblemSummary) -> None:
        self._place += 1
        self._progress.reset(
            self._trials, description=self._named(summary), total=summary.planned, completed=summary.known, best=self._best(summary, None)
        )
        self._progress.update(self._trials, visible=True)

    def trial(self, summary: ProblemSummary, attempt: Attempt) -> None:
        completed = summary.known + summary.done + 1
        self._progress.update(self._trials, completed=completed, best=self._best(summary, attempt.best_us))

    def racing(self, summary: ProblemSummary, contenders: int) -> None:
        self._progress.update(self._trials, description=f"{self._named(summary)}, {contenders} race")

    def waiting(self, why: str, seconds: float) -> None:
        super().waiting(why, seconds)
        self._progress.update(self._trials, description="waiting for room")

    def ended(self, summary: Summary) -> None:
        self._progress.stop()
        super().ended(summary)

    def aborted(self) -> None:
        self._progress.stop()  # or the terminal's cursor stays hidden

    def _named(self, summary: ProblemSummary) -> str:
        return f"{summary.problem}" + (f" ({self._place} of {self._problems})" if self._problems > 1 else "")

    def _best(self, summary: ProblemSummary, best_us: float | None) -> str:
        parts = [f"best {microseconds(best_us)} us"] if best_us else []
        if best_us and summary.copy_us:
            parts.append(f"{percent(summary.copy_us / best_us)} of copy")
        parts += self._all_left(summary)
        others = Counter(summary.outcomes)
        del others[Outcome.OK]
        if others:
            parts.append(outcomes(others))
        return ", ".join(parts) + self._note if parts else ""

    def _all_left(self, summary: ProblemSummary) -> list[str]:
        """The time that this problem and all further ones are going to take, going by what is behind."""
        to_do = summary.planned - summary.known if summary.planned else 0
        behind = self._place - 1 + (summary.done / to_do if to_do else 0.0)
        if not behind or self._problems == 1:
            return []
        seconds = (time.monotonic() - self._tuning_since) / behind * (self._problems - behind)
        return [f"all {self._problems} done in about {timedelta(seconds=round(seconds))}"]

    def _say(self, line: str) -> None:
        self._console.print(line + self._note, markup=False, highlight=False)


def _two_lines(console: "Console") -> "Progress":
    """A line with the bar, how many are done and the time left, and a line with all else: in 80 columns they do not fit on one."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
    from rich.text import Text

    class TwoLines(Progress):
        def get_renderables(self) -> Iterator["RenderableType"]:
            yield from super().get_renderables()
            yield from (Text(task.fields["best"], no_wrap=True, overflow="ellipsis") for task in self.tasks if task.fields["best"])

    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=max(8, min(24, console.width - 64))),
        MofNCompleteColumn(),
        TimeRemainingColumn(compact=True),
    )
    return TwoLines(*columns, console=console, transient=True)


class JsonWatcher(Watcher):
    """One JSON object a line, each with `event` and seconds since the start."""

    def __init__(self) -> None:
        self._started = time.monotonic()
        self._recorded_on: str | None = None

    def began(self, problems: int, device: Device, *, replayed: bool) -> None:
        self._recorded_on = device.name if replayed else None
        self._say("began", problems=problems, device=device.name)

    def building(self, done: int, total: int, failed: Mapping[Configuration, str]) -> None:
        self._say("building", done=done, total=total, failed=len(failed))

    def problem(self, summary: ProblemSummary) -> None:
        counted = {name: getattr(summary, name) for name in ("space", "known", "blocked", "planned")}
        self._say("problem", **_named(summary), **counted)

    def trial(self, summary: ProblemSummary, attempt: Attempt) -> None:
        chosen = {"version": attempt.configuration.version, "parameters": dict(attempt.configuration.parameters)}
        share = summary.copy_us / attempt.best_us if summary.copy_us and attempt.best_us else None
        facts = {name: getattr(attempt, name) for name in ("outcome", "time_us", "best_us", "message")} | {"fraction_of_copy": share}
        self._say("trial", **_named(summary), **chosen, **facts, done=summary.known + summary.done + 1)

    def racing(self, summary: ProblemSummary, contenders: int) -> None:
        self._say("racing", **_named(summary), contenders=contenders)

    def waiting(self, why: str, seconds: float) -> None:
        self._say("waiting", why=why, at_most_s=seconds)

    def settled(self, summary: ProblemSummary) -> None:
        choice = summary.choice
        best = (
            {
                "version": choice.configuration.version,
                "parameters": dict(choice.configuration.parameters),
                "time_us": choice.time_us,
                "confidence_us": [choice.low_us, choice.high_us] if choice.low_us < choice.high_us else None,
                "runner_up_us": choice.runner_up_us,
                "gap": choice.gap,
                "beyond_noise": choice.beyond_noise,
                "confirmed": summary.confirmed,
            }
            if choice
            else {}
        )
        counts = {str(outcome): count for outcome, count in summary.outcomes.items()}
        told = {"outcomes": counts, "failures": dict(summary.failures), "stale": summary.stale, "whole": summary.whole}
        told |= {"impossible": summary.impossible} if summary.impossible else {}
        told |= {"late_s": summary.late_s} if summary.late_s is not None else {}
        self._say("settled", **_named(summary), **best, copy_us=summary.copy_us, **told)

    def learnt(self, trained: Trained) -> None:
        regret = trained.model.regret
        facts = {"geomean": regret.geomean, "p95": regret.p95, "worst": regret.worst}
        self._say("learnt", dtype=trained.dtype, kind=trained.model.kind, sizes=trained.model.sizes, regret=facts, why=trained.why)

    def ended(self, summary: Summary) -> None:
        counts = {str(outcome): count for outcome, count in summary.outcomes.items()}
        self._say(
            "ended",
            device=summary.device,
            new_trials=summary.new_trials,
            raced_again=summary.raced_again,
            outcomes=counts,
            confirmed=summary.confirmed,
            whole=summary.whole,
            interrupted=summary.interrupted,
            interrupted_in=summary.interrupted_in,
        )

    def _say(self, event: str, **facts: Any) -> None:
        recorded = {"recorded_on": self._recorded_on} if self._recorded_on else {}
        told = {"event": event, "seconds": round(time.monotonic() - self._started, 3), **recorded, **facts}
        click.echo(json.dumps(finite(told), allow_nan=False))


def _named(summary: ProblemSummary) -> dict[str, Any]:
    problem = summary.problem
    return {"operation": problem.operation, "rows": problem.rows, "cols": problem.cols, "dtype": problem.dtype}
