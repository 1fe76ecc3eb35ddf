# `make sweep` tunes, `make test` checks; both install first, into .venv. `make help` lists the rest.

PYTHON ?= python3
VENV ?= .venv
VENV_FLAGS ?=
WHEELS ?=
DEVICE ?= auto
SIZE ?= 4096x4096

BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
ORIGIN := $(if $(WHEELS),--no-index --find-links $(WHEELS))
INSTALL := $(PIP) install --quiet $(ORIGIN)
GPU := $(BIN)/python -c 'import sys; from autotune.backends.select import gpu_count; sys.exit(not gpu_count())'

.DEFAULT_GOAL := help
.PHONY: help install sweep tune replay test lint format types pytest gpu-test all-instances pycuda-check docs wheels clean

help:  ## Show this
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-13s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))
	@echo
	@echo 'PYTHON=python3.12 makes .venv with that Python; WHEELS=DIR installs from a folder alone; DEVICE= and SIZE= go to the sweep.'

install: $(VENV)/.installed  ## Make .venv and install autotune in it

sweep: $(VENV)/.installed  ## Tune softmax at 4096x4096 float32 on the first GPU; without one, in the emulator and from recordings
	@$(MAKE) --no-print-directory $$($(GPU) && echo tune || echo replay)

tune: $(VENV)/.installed-cuda
	$(BIN)/autotune sweep softmax --size $(SIZE) --device $(DEVICE)

replay:
	$(BIN)/autotune sweep softmax --size 64x1000 --device emulator --trials 12
	$(BIN)/autotune sweep softmax --size $(SIZE) --device $(DEVICE)

test: lint types pytest  ## Format, lint, types, tests: what CI runs

lint: $(VENV)/.installed-dev  ## Check format and style
	$(BIN)/ruff format --check
	$(BIN)/ruff check

types: $(VENV)/.installed-dev  ## Check types
	$(BIN)/mypy autotune tests scripts

pytest: $(VENV)/.installed-dev  ## Run the tests that need no GPU
	$(BIN)/python -m pytest -n auto

format: $(VENV)/.installed-dev  ## Format, and repair what can be repaired
	$(BIN)/ruff format
	$(BIN)/ruff check --fix

gpu-test: $(VENV)/.installed-dev $(VENV)/.installed-cuda  ## Run the tests that need a GPU; without one this is an error
	$(BIN)/python -m pytest tests/gpu -m gpu

all-instances: $(VENV)/.installed-dev  ## Check every instance of softmax v5-v10, in the emulator and by nvcc (takes long)
	AUTOTUNE_ALL_INSTANCES=1 $(BIN)/python -m pytest -n auto tests/test_softmax_instances.py

pycuda-check: $(VENV)/.installed-dev  ## Build PyCUDA as on a GPU machine, with and without a CUDA toolkit, under a stand-in for the driver
	$(BIN)/python scripts/check_pycuda.py

docs: $(VENV)/.installed-dev  ## Write docs/command_line.md from the commands' help
	$(BIN)/python scripts/command_line.py docs/command_line.md

wheels: $(VENV)/.installed  ## Fill the folder WHEELS with all that an installation of this Python needs
	$(if $(WHEELS),,$(error name the folder: make wheels WHEELS=DIR))
	$(PIP) wheel --quiet --wheel-dir $(WHEELS) 'setuptools>=77' wheel '.[dev,run]' pytools mako nvidia-ml-py
	$(PIP) download --quiet --dest $(WHEELS) --no-deps --no-build-isolation --no-binary pycuda pycuda
	rm -rf build $(WHEELS)/pycuda_autotune-*.whl

clean:  ## Remove .venv and everything that was built
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# Each file says that one set of packages is installed, and is older than setup.cfg when that may have changed.
$(VENV)/.installed: setup.cfg pyproject.toml
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("autotune needs Python 3.11 or newer, this is " + sys.version.split()[0] + "; name another: make PYTHON=python3.12 ...")'
	test -x $(BIN)/pip || $(PYTHON) -m venv $(VENV_FLAGS) $(VENV)
	$(INSTALL) 'setuptools>=77' wheel
	$(INSTALL) --no-build-isolation --editable .
	@touch $@

$(VENV)/.installed-dev: $(VENV)/.installed
	$(INSTALL) --no-build-isolation --editable '.[dev,run]'
	@touch $@

$(VENV)/.installed-cuda: $(VENV)/.installed scripts/install_pycuda.py
	$(BIN)/python scripts/install_pycuda.py $(if $(WHEELS),--wheels $(WHEELS))
	$(INSTALL) --no-build-isolation --editable '.[cuda]'
	@touch $@
