"""A disk that is really full: a small file system in memory, mounted by a child process for itself alone."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

# Any user may mount in namespaces of its own where the kernel is set up so; where it is not, root may in a mount namespace.
NAMESPACES = (["unshare", "--user", "--map-root-user", "--mount"], ["unshare", "--mount"])
REFUSED = 77


def on_a_small_disk(where: Path, size: str, script: str, *arguments: str, **how: Any) -> "subprocess.CompletedProcess[str]":
    """What the shell `script` did with a disk of `size` mounted at `where`; $PYTHON is this Python, `arguments` are $1, $2, ...

    Skips the test in a container whose kernel refuses both ways: no file system can be mounted there by anyone.
    """
    mounted = f'PYTHON="{sys.executable}"; mount -t tmpfs -o size={size} none "{where}" || exit {REFUSED}; {script}'
    for namespace in NAMESPACES:
        command = [*namespace, "sh", "-c", mounted, "sh", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, **how)
        if done.returncode != REFUSED and "unshare failed" not in done.stderr:
            return done
    pytest.skip(
        f"nobody can mount a file system in this container ({done.stderr.strip()}); tests with a limit on file sizes run all the same"
    )
