# Two commands are all a newcomer needs: `make quickstart` and `make test`.

VENV := .venv
PYTHON ?= $(shell for p in python3.13 python3.12 python3.11 python3 python; do \
	"$$p" -c 'import sys, venv; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo "$$p" && break; done)
BIN := $(VENV)/$(if $(filter Windows_NT,$(OS)),Scripts,bin)
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
# One process has the tests on Ray, which mostly wait; the others share the rest.
JOBS ?= 3

.PHONY: quickstart test test-all chaos check lint format bench wheel clean

quickstart: $(VENV)/.core  ## Set everything up, curate the sample data set, write a report.
	@$(BIN)/tamis quickstart

test: $(VENV)/.dev lint  ## Set everything up, check the code, run the tests.
	@$(BIN)/python -m pytest -n $(JOBS) --dist loadgroup --no-loadscope-reorder -m "not exhaustive"

test-all: $(VENV)/.dev lint  ## The same with every combination of executor and pipeline, and more examples.
	@TAMIS_TESTS=thorough $(BIN)/python -m pytest -n $(JOBS) --dist loadgroup --no-loadscope-reorder

chaos: $(VENV)/.dev  ## Kill runs 50 times on each executor, and compare what they end with.
	@TAMIS_CHAOS_ROUNDS=50 $(BIN)/python -m pytest tests/integration/test_chaos.py --timeout 7200

check: $(VENV)/.dev lint  ## The same without Ray and without slow tests: for every few minutes of work.
	@$(BIN)/python -m pytest -n $(JOBS) --dist loadgroup --no-loadscope-reorder -m "not ray and not slow and not exhaustive"

lint: $(VENV)/.dev  ## Formatting, style, types.
	@$(BIN)/ruff format --check --quiet . || { echo "Run 'make format'."; exit 1; }
	@$(BIN)/ruff check --quiet .
	@$(BIN)/mypy

format: $(VENV)/.dev  ## Put the code into shape.
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

bench: $(VENV)/.dev  ## Measure: side by side with a limit or a peer, one run, ratios.
	@for b in benchmarks/bench_*.py; do echo "== $$b"; $(BIN)/python $$b || exit 1; done

wheel: $(VENV)/.dev  ## Build a wheel with compiled kernels, and check that a package index takes it.
	@$(PIP) build hatchling auditwheel twine check-wheel-contents
	@$(BIN)/python -m pytest tests/kernels/test_wheel.py
	@$(BIN)/python -m build --wheel

clean:  ## Remove what the other commands made.
	rm -rf $(VENV) tamis-quickstart .tamis

$(VENV)/.made:
	@test -n "$(PYTHON)" || { echo "tamis needs Python 3.11 or newer: install it, or say 'make PYTHON=/path/to/python3.11'"; exit 1; }
	@echo "Making a virtual environment in $(VENV) ..."
	@$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/.core: $(VENV)/.made pyproject.toml
	@echo "Installing tamis ..."
	@$(PIP) -e .
	@touch $@

$(VENV)/.dev: $(VENV)/.made pyproject.toml
	@echo "Installing tamis with what its tests need ..."
	@$(PIP) torch==2.13.0  # the release that the tests were written with
	@$(PIP) -e '.[dev]'
	@touch $(VENV)/.core $@
