"""A worker runs an engine in a child process and survives whatever happens to that child."""

import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator

import pytest

from autotune.backends.worker import Worker
from autotune.errors import UsageError
from autotune.trial import Failure, Outcome


class Engine:
    """What the child hosts in these tests."""

    def __init__(self, start: int = 0) -> None:
        self.total = start

    def add(self, number: int) -> int:
        self.total += number
        return self.total

    def pid(self) -> int:
        return os.getpid()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    def die(self, signal_number: int) -> None:
        sys.stderr.write("a last word\n")
        sys.stderr.flush()
        os.kill(os.getpid(), signal_number)

    def warn(self) -> None:
        sys.stderr.write("RuntimeWarning: of no consequence\n")
        sys.stderr.flush()

    def die_silently(self) -> None:
        os.kill(os.getpid(), signal.SIGSEGV)

    def exit(self, status: int) -> None:
        os._exit(status)

    def refuse(self) -> None:
        raise UsageError("no such thing; use another")

    def fail(self) -> None:
        raise Failure(Outcome.OUT_OF_MEMORY, "64 GB do not fit")

    def stumble(self) -> None:
        raise ZeroDivisionError("by zero")


@pytest.fixture
def worker() -> Iterator[Worker]:
    worker = Worker("tests.test_worker:Engine", {"start": 5}, hang_timeout_s=20)
    yield worker
    worker.close()


def test_keeps_state_between_calls(worker: Worker) -> None:
    assert [worker.call("add", 1), worker.call("add", 2)] == [6, 8]
    assert worker.generation == 1


@pytest.mark.parametrize("signal_number", [signal.SIGSEGV, signal.SIGKILL, signal.SIGABRT])
def test_a_child_that_dies_is_a_crash_and_is_replaced(worker: Worker, signal_number: signal.Signals) -> None:
    worker.call("add", 1)
    with pytest.raises(Failure, match=f"ended by {signal_number.name} and said: a last word") as caught:
        worker.call("die", signal_number)
    assert caught.value.outcome is Outcome.CRASHED
    assert worker.call("add", 1) == 6  # a new engine, from the start again
    assert worker.generation == 2


def test_what_was_said_before_the_crash_is_not_quoted_as_its_cause(worker: Worker) -> None:
    worker.call("warn")
    with pytest.raises(Failure, match=r"ended by SIGSEGV$"):
        worker.call("die_silently")
    with pytest.raises(Failure, match="ended by SIGSEGV and said: a last word"):
        worker.call("die", signal.SIGSEGV)


def test_a_child_that_exits_is_a_crash(worker: Worker) -> None:
    with pytest.raises(Failure, match="ended with status 3"):
        worker.call("exit", 3)


def test_a_child_that_hangs_is_killed_and_replaced(worker: Worker) -> None:
    pid = worker.call("pid")
    started = time.monotonic()
    with pytest.raises(Failure, match=r"no answer within 0\.301 s") as caught:  # such a limit has a share that was measured
        worker.call("sleep", 60, timeout_s=0.30123)
    assert caught.value.outcome is Outcome.TIMEOUT
    assert time.monotonic() - started < 10
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    assert worker.call("add", 1) == 6


def test_time_in_which_the_asking_process_was_stopped_is_no_time_that_a_child_hangs() -> None:
    script = textwrap.dedent(
        """
        from autotune.backends.worker import Worker
        worker = Worker("tests.test_worker:Engine", {}, hang_timeout_s=2)
        worker.call("pid")
        print("asking", flush=True)
        worker.call("sleep", 1.5)
        print(worker.call("add", 1), worker.generation, flush=True)
        worker.close()
        """
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, start_new_session=True) as asking:
        assert asking.stdout is not None
        assert asking.stdout.readline() == "asking\n"
        time.sleep(0.5)
        os.killpg(asking.pid, signal.SIGSTOP)  # as Ctrl-Z stops a whole process group
        time.sleep(4)
        os.killpg(asking.pid, signal.SIGCONT)
        assert asking.stdout.read() == "1 1\n"


def test_errors_of_the_engine_arrive_as_they_are(worker: Worker) -> None:
    with pytest.raises(UsageError, match="no such thing"):
        worker.call("refuse")
    with pytest.raises(Failure, match="64 GB") as caught:
        worker.call("fail")
    assert caught.value.outcome is Outcome.OUT_OF_MEMORY
    with pytest.raises(Failure, match="ZeroDivisionError: by zero"):
        worker.call("stumble")
    assert worker.generation == 1


@pytest.mark.parametrize("timeout_s", [2.0**31, 1e300])
def test_an_answer_is_waited_for_as_long_as_the_system_can(timeout_s: float, worker: Worker) -> None:
    assert worker.call("add", 1, timeout_s=timeout_s) == 6


def test_a_discarded_child_is_replaced(worker: Worker) -> None:
    worker.call("add", 1)
    worker.discard()
    assert worker.call("add", 1) == 6


def test_the_child_dies_with_a_killed_parent_even_while_it_works() -> None:
    script = textwrap.dedent(
        """
        import sys
        from autotune.backends.worker import Worker
        worker = Worker("tests.test_worker:Engine", {}, hang_timeout_s=600)
        print(worker.call("pid"), flush=True)
        worker.call("sleep", 600)
        """
    )
    parent = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    parent.kill()
    parent.wait()
    for _ in range(200):
        if not _alive(child):
            return
        time.sleep(0.1)
    os.kill(child, signal.SIGKILL)
    pytest.fail("the child outlived its parent by 20 s")


def _alive(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as stat:  # noqa: PTH123
            return stat.read().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False
