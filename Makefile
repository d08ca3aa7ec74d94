# make demo | test | check | slow | soak | floors | clean | distclean
#
# PYTHON  the Python (3.11 or newer) that makes the virtual environment
# VENV    the virtual environment; one that exists is used as it is, and what is missing is installed into it
# DEMO    the workspace of the demo
# WORKERS test processes
# FLOORS  the virtual environment of the oldest libraries, made with Python 3.11

PYTHON ?= python3
VENV ?= .venv
DEMO ?= demo
WORKERS ?= 2
FLOORS ?= .venv-floors

BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
# Tests are compiled once, in whatever shell: bytecode is kept.
PYTEST := OMP_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest
INPUTS := pyproject.toml constraints.txt

# tests of what changes between versions of the libraries: locks, pipes, tables, videos, pictures
OF_LIBRARIES := $(addprefix tests/,artifacts/test_artifacts_build.py commands/test_commands_pipe.py \
  data/test_data_features.py data/test_data_video.py encoders/test_encoders_pictures.py \
  nets/test_nets_text_padding.py stages/extract/test_extract_videos.py stages/extract/test_extract_from_files.py \
  stages/search/test_search_build_index.py stages/train/test_train_step.py translators/test_translators_ct2.py)

.PHONY: help demo install test check format lint types slow soak floors clean distclean

help:
	@echo "make demo    install into $(VENV), then run the whole chain on the bundled pictures (minutes)"
	@echo "make test    install the development tools too, then run the tests"
	@echo "make check   formatting, lint, types, tests"
	@echo "make slow    the tests that take minutes"
	@echo "make soak    the tests that take hours"
	@echo "make floors  the oldest libraries that pyproject.toml accepts, and tests of what uses them"
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
	$(PYTEST) -m "slow and not soak" -n $(WORKERS) --dist worksteal

soak: install
	$(PYTEST) -m soak || [ $$? -eq 5 ]

floors: $(FLOORS)/.ccr-floors
	OMP_NUM_THREADS=1 $(FLOORS)/bin/python -m pytest -m "not slow and not soak" -o filterwarnings=default \
	  -n $(WORKERS) --dist worksteal $(OF_LIBRARIES)

$(FLOORS)/.ccr-floors: pyproject.toml tests/floors.py
	$(PYTHON) -m venv $(FLOORS)
	$(PYTHON) tests/floors.py > $(FLOORS)/floors.txt
	$(FLOORS)/bin/python -m pip --disable-pip-version-check install -q -r $(FLOORS)/floors.txt pytest pytest-xdist hypothesis
	$(FLOORS)/bin/python -m pip --disable-pip-version-check install -q --no-deps -e .
	@touch $@

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
	find . -name __pycache__ -type d -not -path './.venv*' -prune -exec rm -rf {} +

distclean: clean
	rm -rf .venv .venv-floors demo
