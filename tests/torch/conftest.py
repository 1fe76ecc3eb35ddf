"""These tests need torch, a build for the CPU is enough. They are collected only when this folder is named (`pytest tests/torch`)."""

from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent


def pytest_ignore_collect(config: pytest.Config) -> bool | None:
    named = [Path(str(argument).split("::")[0]).resolve() for argument in config.args]
    return None if any(path == HERE or HERE in path.parents for path in named) else True
