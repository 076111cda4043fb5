# Every target makes .venv when it is missing. PYTHON chooses the interpreter (3.11 to 3.13).
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
SEEDS ?= 3
MINOR := $(shell $(PYTHON) -c 'import sys; print("%d.%d" % sys.version_info[:2])')
STAMP := $(VENV)/.made-$(MINOR)

.PHONY: setup demo test test-long lint types layers format build smoke bench clean help

help:
	@echo "make setup   .venv with everything pinned"
	@echo "make demo    a real training run hangs across three layers, is explained, freed, and finishes"
	@echo "make test    the test suite"
	@echo "make lint    ruff, mypy, layer rules"
	@echo "make bench   what supervision costs, as ratios"

setup: $(STAMP)

$(STAMP): pyproject.toml constraints/$(MINOR).txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints/$(MINOR).txt torch numpy
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints/$(MINOR).txt --editable ".[dev]"
	touch $@

demo: $(STAMP)
	$(BIN)/python examples/agent_training/main.py --demo

test: $(STAMP)
	$(BIN)/python -m pytest tests

lint: $(STAMP)
	$(BIN)/ruff check .
	$(MAKE) --no-print-directory types layers

types: $(STAMP)
	$(BIN)/mypy

layers: $(STAMP)
	$(BIN)/lint-imports

format: $(STAMP)
	$(BIN)/ruff check --fix .

build: $(STAMP)
	rm -rf dist
	$(BIN)/python -m build --outdir dist

smoke: build
	$(BIN)/python tests/smoke/wheel.py dist

bench: $(STAMP)
	$(BIN)/python benchmarks/imports.py
	$(BIN)/python benchmarks/locks.py
	$(BIN)/python benchmarks/step.py

clean:
	rm -rf $(VENV) dist build .mypy_cache .ruff_cache .pytest_cache .hypothesis
