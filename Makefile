# `make demo` shows the package at work, `make test` runs every quality gate.
# Both build the environment they need in .venv, once.

ifeq ($(OS),Windows_NT)
PYTHON ?= python
BIN := Scripts
else
PYTHON ?= python3
BIN := bin
endif

VENV := .venv
BARE := .venv-bare
RUN := $(VENV)/$(BIN)/python
PIP_INSTALL := -m pip install --quiet --disable-pip-version-check --constraint constraints.txt
SETUP := pyproject.toml constraints.txt
WORKERS ?= 2

.DEFAULT_GOAL := help
.PHONY: help demo test lint types unit wheel docs clean

help:
	@echo "make demo    run the package on robust Branin: a result and a picture"
	@echo "make test    run all quality gates: lint, types, unit, wheel"
	@echo "make lint    ruff format check and lint"
	@echo "make types   mypy"
	@echo "make unit    pytest with branch coverage"
	@echo "make wheel   build the wheel and import it without extras"
	@echo "make docs    build the documentation in site/"
	@echo "make clean   remove environments, caches and build products"

demo: $(VENV)/demo.stamp
	$(VENV)/$(BIN)/botorch-res run branin --iterations 20 --seed 0 --plot robust_branin.png

test: lint types unit wheel
	@echo "All quality gates passed."

lint: $(VENV)/test.stamp
	$(RUN) -m ruff format --check .
	$(RUN) -m ruff check .

types: $(VENV)/test.stamp
	$(RUN) -m mypy

# With tensors this small a second thread costs more than it brings: one torch
# thread for each worker process.
unit: export OMP_NUM_THREADS = 1
unit: export MKL_NUM_THREADS = 1
unit: $(VENV)/test.stamp
	$(RUN) -m pytest -n $(WORKERS) --cov --cov-report=term

# The wheel must work with the core dependencies alone, so it is installed in an
# environment of its own and imported from outside the source tree.
wheel: $(VENV)/test.stamp $(BARE)/bare.stamp
	rm -rf dist
	$(RUN) -m build --wheel --no-isolation --outdir dist . > dist.log 2>&1 || (cat dist.log && exit 1)
	$(BARE)/$(BIN)/python $(PIP_INSTALL) --no-deps --force-reinstall dist/*.whl
	$(BARE)/$(BIN)/python tests/import_wheel.py

# The tests build it, too. Not --quiet, which hides the warnings that strict mode counts.
docs: export NO_MKDOCS_2_WARNING = 1
docs: $(VENV)/test.stamp
	$(RUN) -m mkdocs build --strict
	@echo "The documentation is in site/index.html; its search needs a server:"
	@echo "$(RUN) -m mkdocs serve"

$(RUN): 
	@$(PYTHON) -c "import sys; sys.exit(sys.version_info < (3, 11))" || \
		(echo "botorch_res needs Python 3.11 or newer; set PYTHON, for example: make $(MAKECMDGOALS) PYTHON=python3.12" && exit 1)
	$(PYTHON) -m venv $(VENV)

$(VENV)/demo.stamp: $(SETUP) | $(RUN)
	@echo "Installing botorch_res with the extras cli and plot in $(VENV) ..."
	$(RUN) $(PIP_INSTALL) --editable ".[cli,plot]"
	@touch $@

$(VENV)/test.stamp: $(SETUP) | $(RUN)
	@echo "Installing botorch_res with all extras and the developers' tools in $(VENV) ..."
	$(RUN) $(PIP_INSTALL) --editable ".[all,dev]"
	@touch $@ $(VENV)/demo.stamp

$(BARE)/bare.stamp: $(SETUP)
	@echo "Installing the core dependencies alone in $(BARE) ..."
	$(PYTHON) -m venv $(BARE)
	$(BARE)/$(BIN)/python $(PIP_INSTALL) .
	@touch $@

clean:
	rm -rf $(VENV) $(BARE) build dist dist.log site .coverage .coverage.* .hypothesis .mypy_cache .pytest_cache .ruff_cache
