# Every target makes .venv when it is missing or out of date. PYTHON chooses the interpreter, 3.11 to 3.13.
ifndef PYTHON
PYTHON := $(shell for p in python3 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' 2>/dev/null && echo $$p && break; done)
endif
VENV ?= .venv
BIN := $(VENV)/bin
MINOR := $(shell $(PYTHON) -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null)
PINS := constraints/$(MINOR).txt
STAMP := $(VENV)/.made-$(MINOR)
PIP := $(BIN)/pip --disable-pip-version-check

.PHONY: help setup demo test test-long chaos chaos-short lint style types layers format build smoke bench clean

help:
	@echo "make setup   .venv with everything pinned"
	@echo "make demo    a real training run hangs across three layers, is explained and freed; members are killed; the same weights"
	@echo "make test    the test suite"
	@echo "make chaos   kill -9 at named points of a real run, SEEDS=\"17 18\" STEPS=12 choose which: the weights must come out the same"
	@echo "make chaos-short  the same with 6 steps and three seeds whose faults all fire in them, as in .ci/run"
	@echo "make test-long  the detector against brute force in 200,000 histories (hours)"
	@echo "make lint    ruff, mypy, layer rules"
	@echo "make smoke   sdist and wheel, used in an empty environment"
	@echo "make bench   what supervision costs, as ratios"

setup: $(STAMP)

$(STAMP): pyproject.toml $(PINS)
	@test -n "$(MINOR)" || { echo "no Python 3.11, 3.12 or 3.13 found: make PYTHON=/path/to/python"; exit 1; }
	$(PYTHON) -m venv $(if $(wildcard $(STAMP)),,--clear) $(VENV)
	$(PIP) install --quiet --no-compile --constraint $(PINS) hatchling
	$(PIP) install --quiet --no-compile --constraint $(PINS) --no-build-isolation --editable ".[dev]"
	@# Dozens of processes of a test run import torch and Ray: compiled once, each starts in half the time. A few files are no Python.
	@$(BIN)/python -m compileall -q -j 0 $(VENV)/lib >/dev/null || true
	@touch $@

demo: $(STAMP)
	$(BIN)/python examples/agent_training/main.py --demo

test: $(STAMP)
	$(BIN)/python -m pytest tests

SEEDS ?= 17 18 19
STEPS ?= 12
chaos: $(STAMP)
	$(BIN)/python -m tests.chaos.run --steps $(STEPS) $(SEEDS)

# Few steps, and seeds whose faults all fire in them: a rank dies after a commit, in a vote, and before it answers for a manifest; the other
# one in the restore or the re-form that follows.
chaos-short: $(STAMP)
	$(BIN)/python -m tests.chaos.run --steps 6 11 14 41

test-long: $(STAMP)
	UNKNOT_SCENARIOS=200000 $(BIN)/python -m pytest tests/graph --timeout=0

lint: style types layers

style: $(STAMP)
	$(BIN)/ruff check .

types: $(STAMP)
	$(BIN)/mypy

layers: $(STAMP)
	$(BIN)/lint-imports

format: $(STAMP)
	$(BIN)/ruff check --fix .

build: $(STAMP)
	rm -rf dist
	$(BIN)/python -m build --no-isolation --outdir dist

smoke: build
	$(BIN)/python tests/smoke/wheel.py dist

bench: $(STAMP)
	$(BIN)/python benchmarks/imports.py
	$(BIN)/python benchmarks/locks.py
	$(BIN)/python benchmarks/graph.py
	$(BIN)/python benchmarks/detection.py
	$(BIN)/python benchmarks/step.py
	$(BIN)/python benchmarks/recovery.py
	$(BIN)/python benchmarks/replay.py

clean:
	rm -rf $(VENV) dist build .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
