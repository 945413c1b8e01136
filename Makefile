PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: demo test test-slow check docs examples bench stale reproduce reproduce-quick clean

# What a newcomer needs: the library and its report, without PyTorch and checkers.
demo: $(VENV)/.demo
	$(BIN)/vertebra demo

# Every kind of promise once, in minutes.
test: $(READY)
	$(BIN)/python -m pytest -n 2 --dist worksteal -m 'not slow'

# The rest: other implementations, many processes, browser, site, examples, long fuzzing and studies of many fits.
test-slow: $(READY)
	$(BIN)/python -m pytest -n 2 --dist worksteal -m slow

check: $(READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/pyright

# Offline: what needs tables from elsewhere is rendered by `make examples`, and kept.
docs: $(READY)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

# The pages of docs/examples. Tables are read from the folder VERTEBRA_DATA, and without it fetched.
examples: $(READY)
	$(BIN)/python examples/render.py

# Results whose code has changed since they were recorded, and the pages that quote them.
stale:
	$(PYTHON) experiments/stamps.py

bench: $(VENV)/.bench
	$(BIN)/python benchmarks/run.py

# All studies; hours to days. A run that was cut off goes on, what the code of today has done stays.
# JOBS=16 processes (else as many as there are cores), GPU=1 for what needs one, VERTEBRA_DATA for the tables.
JOBS ?=
REPRODUCE = $(abspath $(BIN))/python experiments/reproduce.py $(if $(JOBS),--jobs $(JOBS)) $(if $(GPU),--gpu)

reproduce: $(VENV)/.peers $(VENV)/.bench
	$(REPRODUCE)

# The small form of each study that has one.
reproduce-quick: $(VENV)/.peers $(VENV)/.bench
	$(REPRODUCE) --quick
	cd experiments && ../$(BIN)/python render.py --quick

clean:
	rm -rf $(VENV) site demo-output

$(VENV)/.made:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Vertebra needs Python 3.11 or newer: make PYTHON=python3.12 …")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	touch $@

$(VENV)/.demo: pyproject.toml | $(VENV)/.made
	$(BIN)/python -m pip install --quiet --editable '.[report]'
	touch $@

$(READY): pyproject.toml | $(VENV)/.made
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	$(BIN)/python -m pip install --quiet torch==2.13.0 && $(BIN)/python -m pip install --quiet --editable '.[oracles,experiments]' \
		|| echo 'torch or gpytorch could not be installed: the tests against them in tests/test_oracles.py will skip.'
	touch $@

$(VENV)/.peers: $(READY)
	$(BIN)/python -m pip install --quiet torch==2.13.0
	$(BIN)/python -m pip install --quiet --editable '.[peers]'
	touch $@

$(VENV)/.bench: $(READY)
	$(BIN)/python -m pip install --quiet torch==2.13.0
	$(BIN)/python -m pip install --quiet --editable '.[bench]'
	touch $@
