# make demo | test | check | slow | soak | clean | distclean
#
# PYTHON  the Python (3.11 or newer) that makes the virtual environment
# VENV    the virtual environment; one that exists is used as it is, and what is missing is installed into it
# DEMO    the workspace of the demo
# WORKERS test processes

PYTHON ?= python3
VENV ?= .venv
DEMO ?= demo
WORKERS ?= 2

BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest
INPUTS := pyproject.toml constraints.txt

.PHONY: help demo install test check format lint types slow soak clean distclean

help:
	@echo "make demo    install into $(VENV), then run the whole chain on the bundled pictures (minutes)"
	@echo "make test    install the development tools too, then run the tests"
	@echo "make check   formatting, lint, types, tests"
	@echo "make slow    the tests that take minutes"
	@echo "make soak    the tests that take hours"
	@echo "make clean   remove what builds and tests leave behind; make distclean: $(DEMO)/ and .venv too"

demo: $(VENV)/.ccr-demo
	$(BIN)/ccr demo --workspace $(DEMO)

install: $(VENV)/.ccr-dev

test: install
	$(PYTEST) -m "not slow and not soak" -n $(WORKERS) --dist worksteal

check: format lint types test

format: install
	$(BIN)/ruff format --check .

lint: install
	$(BIN)/ruff check .

types: install
	$(BIN)/mypy

slow: install
	$(PYTEST) -m slow -n $(WORKERS) --dist worksteal

soak: install
	$(PYTEST) -m soak || [ $$? -eq 5 ]

$(BIN)/python:
	@command -v $(PYTHON) >/dev/null || { echo "there is no $(PYTHON); name a Python 3.11 or newer: make demo PYTHON=python3.12" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "ccr needs Python 3.11 or newer, $(PYTHON) is $$($(PYTHON) --version 2>&1); name another: make demo PYTHON=python3.12" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV) || { echo "no virtual environment: is python3-venv installed?" >&2; exit 1; }

$(VENV)/.ccr-demo: $(INPUTS) | $(BIN)/python
	$(PIP) install -c constraints.txt -e '.[demo]'
	@touch $@

$(VENV)/.ccr-dev: $(INPUTS) | $(BIN)/python
	$(PIP) install -c constraints.txt -e '.[demo,dev]'
	@touch $@ $(VENV)/.ccr-demo

clean:
	rm -rf build dist ccr_cli.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -not -path './.venv/*' -prune -exec rm -rf {} +

distclean: clean
	rm -rf .venv demo
