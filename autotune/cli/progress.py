"""How a sweep shows itself: a bar on a terminal, plain lines elsewhere, JSON lines for programs."""

import json
import sys
import time
from typing import Any

import click

from autotune.cli.output import microseconds, percent
from autotune.configuration import Configuration
from autotune.device import Device
from autotune.selector.training import Trained
from autotune.trial import Outcome
from autotune.watch import ProblemSummary, Summary, Watcher


def watcher(*, as_json: bool) -> Watcher:
    """The watcher that suits where standard output goes."""
    if as_json:
        return JsonWatcher()
    return BarWatcher() if sys.stdout.isatty() else PlainWatcher()


class PlainWatcher(Watcher):
    """One line per step that matters; each says so when its times are recorded ones."""

    def __init__(self) -> None:
        self._note = ""

    def began(self, problems: int, device: Device, *, replayed: bool) -> None:
        self._note = f" (recorded on {device.name})" if replayed else ""
        self._say(f"tuning {problems} problem{'s' * (problems != 1)} on {device.name}")

    def building(self, done: int, total: int) -> None:
        if done == total and not self._note:
            self._say(f"built {total} instances")

    def settled(self, summary: ProblemSummary) -> None:
        for message, count in summary.failures.most_common(3):
            self._say(f"{summary.problem}: {count} x {message}")
        self._say(describe(summary))

    def learnt(self, trained: Trained) -> None:
        self._say(f"selector for {trained.dtype}: {trained.model}; {trained.why}")

    def ended(self, summary: Summary) -> None:
        if summary.interrupted:
            self._say("interrupted; everything measured so far is stored, and the same command goes on from here")
        self._say(f"{summary.new_trials} new trials")

    def _say(self, line: str) -> None:
        click.echo(line + self._note)


class BarWatcher(PlainWatcher):
    """A progress bar with time left, best so far and share of copy, above which the plain lines pass."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        super().__init__()
        self._console = Console()
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TimeRemainingColumn(compact=True),
            TextColumn("{task.fields[best]}"),
            console=self._console,
            transient=True,
        )
        self._builds = self._progress.add_task("building", total=None, best="", visible=False)
        self._trials = self._progress.add_task("", total=None, best="", visible=False)

    def began(self, problems: int, device: Device, *, replayed: bool) -> None:
        super().began(problems, device, replayed=replayed)
        self._progress.start()

    def building(self, done: int, total: int) -> None:
        self._progress.update(self._builds, completed=done, total=total, visible=done < total)
        super().building(done, total)

    def problem(self, summary: ProblemSummary) -> None:
        self._progress.reset(self._trials, description=str(summary.problem), total=summary.space, completed=summary.known, best="")
        self._progress.update(self._trials, visible=True)

    def trial(
        self,
        summary: ProblemSummary,
        configuration: Configuration,
        outcome: Outcome,
        time_us: float | None,
        best_us: float | None,
        message: str = "",
    ) -> None:
        self._progress.update(self._trials, completed=summary.known + summary.new_trials, best=self._best(summary, best_us))

    def racing(self, summary: ProblemSummary, contenders: int) -> None:
        self._progress.update(self._trials, description=f"{summary.problem}, {contenders} race")

    def ended(self, summary: Summary) -> None:
        self._progress.stop()
        super().ended(summary)

    def _best(self, summary: ProblemSummary, best_us: float | None) -> str:
        failed = sum(count for outcome, count in summary.outcomes.items() if not outcome.timed)
        parts = [f"best {microseconds(best_us)} us"] if best_us else []
        if best_us and summary.copy_us:
            parts.append(f"{percent(summary.copy_us / best_us)} of copy")
        if failed:
            parts.append(f"{failed} failed")
        return ", ".join(parts) + self._note

    def _say(self, line: str) -> None:
        self._console.print(line + self._note, markup=False, highlight=False)


class JsonWatcher(Watcher):
    """One JSON object a line, each with `event` and seconds since the start."""

    def __init__(self) -> None:
        self._started = time.monotonic()
        self._recorded_on: str | None = None

    def began(self, problems: int, device: Device, *, replayed: bool) -> None:
        self._recorded_on = device.name if replayed else None
        self._say("began", problems=problems, device=device.name)

    def building(self, done: int, total: int) -> None:
        self._say("building", done=done, total=total)

    def problem(self, summary: ProblemSummary) -> None:
        self._say("problem", **_named(summary), space=summary.space, known=summary.known)

    def trial(
        self,
        summary: ProblemSummary,
        configuration: Configuration,
        outcome: Outcome,
        time_us: float | None,
        best_us: float | None,
        message: str = "",
    ) -> None:
        chosen = {"version": configuration.version, "parameters": dict(configuration.parameters)}
        self._say("trial", **_named(summary), **chosen, outcome=outcome, time_us=time_us, best_us=best_us)

    def racing(self, summary: ProblemSummary, contenders: int) -> None:
        self._say("racing", **_named(summary), contenders=contenders)

    def settled(self, summary: ProblemSummary) -> None:
        choice = summary.choice
        best = (
            {
                "version": choice.configuration.version,
                "parameters": dict(choice.configuration.parameters),
                "time_us": choice.time_us,
                "confidence_us": [choice.low_us, choice.high_us],
                "beyond_noise": choice.beyond_noise,
                "confirmed": summary.confirmed,
            }
            if choice
            else {}
        )
        counts = {str(outcome): count for outcome, count in summary.outcomes.items()}
        self._say("settled", **_named(summary), **best, copy_us=summary.copy_us, outcomes=counts, failures=dict(summary.failures))

    def learnt(self, trained: Trained) -> None:
        regret = trained.model.regret
        facts = {"geomean": regret.geomean, "p95": regret.p95, "worst": regret.worst}
        self._say("learnt", dtype=trained.dtype, kind=trained.model.kind, sizes=trained.model.sizes, regret=facts, why=trained.why)

    def ended(self, summary: Summary) -> None:
        self._say("ended", new_trials=summary.new_trials, interrupted=summary.interrupted)

    def _say(self, event: str, **facts: Any) -> None:
        recorded = {"recorded_on": self._recorded_on} if self._recorded_on else {}
        click.echo(json.dumps({"event": event, "seconds": round(time.monotonic() - self._started, 3), **recorded, **facts}))


def describe(summary: ProblemSummary) -> str:
    """One line on what was tried for a problem, what won, and how sure that is."""
    choice, new = summary.choice, summary.new_trials
    tried = f"{summary.problem}: {new} new of {summary.space} configurations"
    if choice is None:
        return f"{tried}; none of them can be used"
    share = f" ({percent(summary.copy_us / choice.time_us)} of copy)" if summary.copy_us else ""
    half = (choice.high_us - choice.low_us) / 2 / choice.time_us
    sure = f"+-{percent(half)}" + ("" if summary.confirmed else ", provisional")
    line = f"{tried}; best {choice.configuration}: {microseconds(choice.time_us)} us{share}, {sure}"
    if choice.runner_up is not None and choice.gap is not None:
        verdict = f"{percent(choice.gap)} behind" if choice.beyond_noise else "within noise"
        line += f"; next {choice.runner_up} {verdict}"
    return line


def _named(summary: ProblemSummary) -> dict[str, Any]:
    problem = summary.problem
    return {"operation": problem.operation, "rows": problem.rows, "cols": problem.cols, "dtype": problem.dtype}
