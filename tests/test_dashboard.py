"""The study that is exported for optuna-dashboard opens in a real one."""

import json
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import urlopen

import pytest

from tests.command import said
from tests.report_samples import configurations, measured


@pytest.fixture
def dashboard(tmp_path: Path) -> Iterator[str]:
    """The address of a dashboard on an export of the sample database."""
    storage = tmp_path / "optuna.sqlite"
    said("export", "--optuna", str(storage), "--device", "Test GPU", "--size", "4096x4096", "--db", str(measured(tmp_path / "x.sqlite")))
    program = shutil.which("optuna-dashboard", path=Path(sys.executable).parent)
    assert program, "optuna-dashboard is one of the packages for development: pip install -e .[dev]"
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with (
        (tmp_path / "log").open("w") as log,
        subprocess.Popen([program, "--host", "127.0.0.1", "--port", str(port), f"sqlite:///{storage}"], stdout=log, stderr=log) as served,
    ):
        yield f"http://127.0.0.1:{port}"
        served.terminate()


def asked(address: str) -> Any:
    """What a server answers, which may not have started yet."""
    for _ in range(600):
        try:
            with urlopen(address, timeout=60) as answer:
                return json.loads(answer.read())
        except URLError:
            time.sleep(0.1)
    raise AssertionError(f"{address} does not answer")


def test_a_dashboard_shows_every_study_with_its_trials_parameters_and_times(dashboard: str) -> None:
    studies = asked(f"{dashboard}/api/studies")["study_summaries"]
    assert {study["study_name"] for study in studies} == {
        f"softmax 4096x4096 {dtype} on Test GPU, cold rule 1" for dtype in ("bfloat16", "float32")
    }
    assert all(study["directions"] == ["minimize"] for study in studies)
    study = asked(f"{dashboard}/api/studies/{studies[0]['study_id']}")
    assert len(study["trials"]) == len(list(configurations()))
    assert {trial["state"] for trial in study["trials"]} == {"Complete", "Fail"}
    complete = next(trial for trial in study["trials"] if trial["state"] == "Complete")
    assert [parameter["name"] for parameter in complete["params"]] == ["version", "block", "vector"]
    assert complete["values"][0] > 0
    assert study["objective_names"] == ["time, us"]
