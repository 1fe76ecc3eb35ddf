"""What all tests share: tests that need nvcc are deselected where there is none, and those that need a browser
skipped; the summary says so."""

import signal
from collections.abc import Iterator
from contextlib import suppress

import pytest

from autotune import nvcc
from autotune.errors import UsageError
from tests import browser

with suppress(ImportError):  # tests/gpu do without it
    from hypothesis import settings

    settings.register_profile("untimed", deadline=None)  # an example that met a busy machine is no slow one
    settings.load_profile("untimed")


def _missing_nvcc() -> str:
    """Why nvcc cannot be used here; "" when it can."""
    try:
        nvcc.find()
    except UsageError as error:
        return str(error)
    return ""


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "nvcc: needs NVIDIA's compiler, but no GPU; deselected, with a word in the summary, where there is none"
    )
    config.addinivalue_line("markers", "browser: needs Chromium; counted as skipped, with a word in the summary, where there is none")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if why := browser.missing():
        for item in items:
            if item.get_closest_marker("browser"):
                item.add_marker(pytest.mark.skip(reason=why))
    deselected = [item for item in items if item.get_closest_marker("nvcc")] if _missing_nvcc() else []
    if deselected:
        config.hook.pytest_deselected(items=deselected)
        items[:] = [item for item in items if item not in deselected]


@pytest.fixture
def signals_are_heard() -> Iterator[None]:
    """Commands that are started hear Ctrl-C and its like, even where what runs the tests does not: nohup, or a shell's background."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    for number, handler in before.items():
        if handler is signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if why := _missing_nvcc():
        terminalreporter.write_line(f"Every test that compiles with nvcc was deselected: {why}", yellow=True)
    if why := browser.missing():
        count = sum(why in str(report.longrepr) for report in terminalreporter.stats.get("skipped", []))
        terminalreporter.write_line(f"{count} tests of the report in a browser were not run: {why}", yellow=True)
