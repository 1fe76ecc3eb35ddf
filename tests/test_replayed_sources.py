"""A recording of kernels that changed between two sizes: each replayed trial is of the source that it was recorded with."""

from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

from autotune import source
from autotune.backends.recorded import RecordedBackend
from autotune.configuration import Configuration
from autotune.database import Database
from autotune.definition import Version
from autotune.operation import Operation
from autotune.problem import Problem
from autotune.sweeping import sweep
from autotune.trial import Failure, Instance
from tests.dispatch_cases import SOFTMAX
from tests.fake import FakeBackend
from tests.imagined_gpu import time_us

OF_ONE_SOURCE, OF_ANOTHER = Problem("softmax", 64, 1000), Problem("softmax", 128, 1000)


@dataclass
class Changed(FakeBackend):
    """A device on which every kernel is of another source."""

    def templates(self, operation: Operation) -> list[tuple[str, source.Source]]:
        return [(name, replace(template, sha=self.changed(template.sha))) for name, template in source.templates(operation)]

    def compile(
        self, version: Version, configurations: Iterable[Configuration], dtype: str
    ) -> Iterator[tuple[Configuration, Instance | Failure]]:
        for configuration, built in super().compile(version, configurations, dtype):
            assert isinstance(built, Instance)
            yield configuration, replace(built, template_sha=self.changed(built.template_sha))

    @staticmethod
    def changed(sha: str) -> str:
        return sha[::-1]


def shas(path: Path) -> set[tuple[int, str, str, str]]:
    with Database(path, mode="read") as database:
        rows = database.select("SELECT rows, version, parameters, template_sha FROM trial_results")
    return {(row["rows"], row["version"], row["parameters"], row["template_sha"]) for row in rows}


def test_each_replayed_trial_is_of_the_source_that_it_was_recorded_with_at_its_size(tmp_path: Path) -> None:
    recording, replay = tmp_path / "recording.sqlite", tmp_path / "replay.sqlite"
    with Database(recording, create=True) as database:
        sweep(SOFTMAX, [OF_ONE_SOURCE], FakeBackend(time_us), database, versions=("v3",))
        sweep(SOFTMAX, [OF_ANOTHER], Changed(time_us), database, versions=("v3",))
    assert len({sha for _, _, _, sha in shas(recording)}) == 2
    with closing(RecordedBackend(recording)) as backend, Database(replay, create=True) as database:
        sweep(SOFTMAX, [OF_ONE_SOURCE, OF_ANOTHER], backend, database, versions=("v3",))
    assert shas(replay) == shas(recording)
