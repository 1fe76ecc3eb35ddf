"""How a benchmark begins: with what it needs, or with one sentence on what is missing and status 2, before any work is done."""

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

# module -> what installs it
INSTALLED_BY = {
    "autotune": "make .venv/.installed-dev, and then .venv/bin/python in place of python",
    "cupy": "pip install cupy-cuda13x",
    "kernel_tuner": "pip install kernel_tuner==1.5.0",
    "liger_kernel": "pip install liger-kernel",
    "matplotlib": "pip install matplotlib",
    "pycuda": "python scripts/install_pycuda.py",
    "torch": "pip install torch",
    "triton": "pip install triton",
}


def require(*modules: str) -> None:
    """End with one sentence unless all of `modules` can be imported."""
    absent = [module for module in modules if importlib.util.find_spec(module) is None]
    if absent:
        how = "; ".join(INSTALLED_BY.get(module, f"pip install {module}") for module in absent)
        ended(f"this needs {' and '.join(absent)}, which {sys.executable} does not have; install with: {how}")


def require_gpu() -> None:
    """End with one sentence where there is no CUDA GPU."""
    from autotune.backends.select import gpu_count

    if not gpu_count():
        ended("no CUDA GPU was found, and this measures one; run it on a machine that has one")


def started(main: Callable[[], object]) -> None:
    """Run `main`, and end with one sentence where what it was given, or what it needs, does not do."""
    require("autotune")
    from autotune.errors import AutotuneError

    try:
        main()
    except AutotuneError as error:
        ended(str(error), error.exit_status)
    except FileNotFoundError as error:
        ended(f"{error.filename} does not exist; name a file that does")
    except ModuleNotFoundError as error:
        if (name := (error.name or "").partition(".")[0]) not in INSTALLED_BY:
            raise
        require(name)
        raise


def ended(why: str, status: int = 2) -> NoReturn:
    """End the process with `status` and one sentence on standard error."""
    print(f"{Path(sys.argv[0]).name}: {why}", file=sys.stderr)
    raise SystemExit(status)
