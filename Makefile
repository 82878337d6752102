# Shadowgraph: everything that is done with a checkout. `make` lists the targets.
#
# A virtual environment is made in .venv from python3 or a python3.11 or later that is found, or from PYTHON=...
# The compiler of the native parts is gcc, or CC=...

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-builtin-rules --no-print-directory

VENV := .venv
BIN := $(VENV)/bin
DEMO := build/demo
PIP := $(BIN)/python -m pip --disable-pip-version-check
INSTALLED_FROM := pyproject.toml native/build_hook.py

.PHONY: help
help:  ## list these targets
	@echo "Shadowgraph: make TARGET, where TARGET is one of"
	@sed -nE 's/^([a-z]+):[^#]*## (.*)/  \1\t\2/p' $(firstword $(MAKEFILE_LIST)) | expand -t 12

.PHONY: demo
demo: $(VENV)/.installed build  ## record a real program (bash) and show its function graph
	@examples/demo.sh $(BIN)/shadowgraph $(DEMO)

# The tests run whatever the checks say, so that one run tells everything; it fails if either does.
.PHONY: test
test: $(VENV)/.installed-dev build  ## ruff, mypy --strict and all tests (PYTEST="-k words" for some of them)
	@status=0; \
	$(MAKE) lint || status=1; \
	$(BIN)/python -m pytest $(PYTEST) || status=1; \
	exit $$status

.PHONY: lint
lint: $(VENV)/.installed-dev  ## ruff and mypy --strict alone
	@status=0; \
	$(BIN)/ruff check --quiet --output-format concise . || status=1; \
	$(BIN)/ruff format --quiet --check --output-format concise . || { echo "some files are not formatted: $(BIN)/ruff format ."; status=1; }; \
	$(BIN)/mypy src/shadowgraph native/build.py || status=1; \
	exit $$status

.PHONY: bench
bench: $(VENV)/.installed-dev build  ## measure what tracing costs, as ratios within one run (BENCH="--quick call_cost": a part)
	@$(BIN)/python bench $(BENCH)

.PHONY: build
build: $(VENV)/.made  ## compile the agent and the column loops, if their sources have changed
	@$(BIN)/python native/build.py

.PHONY: wheel
wheel: $(VENV)/.made  ## a wheel in dist/, with the compiled parts in it
	$(PIP) wheel --quiet --no-deps --wheel-dir dist .
	@ls dist/*.whl

.PHONY: clean
clean:  ## remove all that was made here: .venv, build, dist, compiled parts, caches
	rm -rf $(VENV) build dist src/shadowgraph/_native .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# --- the virtual environment ---

# What is missing on a machine is said in one sentence each, all at once, before anything is downloaded.
$(VENV)/.made: tools/find_python.sh
	@python=$$(tools/find_python.sh); \
	echo "making a virtual environment with $$python"; \
	rm -rf $(VENV); \
	$$python -m venv $(VENV)
	@touch $@

$(VENV)/.installed: $(VENV)/.made $(INSTALLED_FROM)
	$(PIP) install --quiet --editable .
	@touch $@

$(VENV)/.installed-dev: $(VENV)/.made $(INSTALLED_FROM)
	$(PIP) install --quiet --editable '.[dev]'
	@touch $@ $(VENV)/.installed
