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

# The tables that need data read it from the folder VERTEBRA_DATA, and are left out without it.
reproduce-quick: $(VENV)/.peers
	cd experiments && ../$(BIN)/python synthetic.py --quick && ../$(BIN)/python schemes.py --quick
	test -z "$$VERTEBRA_DATA" || (cd experiments && ../$(BIN)/python uci.py --quick)
	cd experiments && ../$(BIN)/python render.py --quick

# Hours; a run that was cut off goes on where it stopped.
reproduce: $(VENV)/.peers
	cd experiments && ../$(BIN)/python synthetic.py && ../$(BIN)/python schemes.py
	test -z "$$VERTEBRA_DATA" || (cd experiments && ../$(BIN)/python uci.py)
	cd experiments && ../$(BIN)/python figures.py && ../$(BIN)/python render.py

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
