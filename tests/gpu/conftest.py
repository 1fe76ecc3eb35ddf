"""These tests need a GPU. They are collected only when this folder is named (`make gpu-test`), and without a GPU that is an error."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from autotune.backends.cuda import CudaBackend
from autotune.errors import UsageError
from tests.gpu.doubling import write_definitions

HERE = Path(__file__).resolve().parent


def pytest_ignore_collect(config: pytest.Config) -> bool | None:
    named = [Path(str(argument).split("::")[0]).resolve() for argument in config.args]
    return None if any(path == HERE or HERE in path.parents for path in named) else True


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if not any(HERE in item.path.parents for item in items):
        return
    backend = CudaBackend()
    try:
        assert backend.environment.compiler
    except UsageError as error:
        raise pytest.UsageError(f"the tests of tests/gpu cannot run here: {error}") from None
    finally:
        backend.close()


@pytest.fixture(scope="session")
def backend() -> Iterator[CudaBackend]:
    backend = CudaBackend(hang_timeout_s=10.0)
    yield backend
    backend.close()


@pytest.fixture(scope="session")
def warm_backend() -> Iterator[CudaBackend]:
    backend = CudaBackend(protocol="warm")
    yield backend
    backend.close()


@pytest.fixture(scope="session")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of definitions of our own: one right kernel and many wrong ones."""
    return write_definitions(tmp_path_factory.mktemp("kernels"))
