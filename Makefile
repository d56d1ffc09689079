# make demo   a prediction on a machine that has only Python 3.11 and make (no torch)
# make test   the tests
# make check  lint, types, documentation and tests: what CI runs
# make docs   the documentation site, in build/site
# make fill   what commands print now, put into the pages of docs/

PYTHON ?= python3.11
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt

.PHONY: help demo test lint types docs fill check format bench clean

help:
	@sed -n 's/^# //p' Makefile

demo: $(VENV)/.installed
	$(BIN)/commsim sweep dgx-h100 all_reduce --nodes 2 -b 8 -e 8G -f 2

test: $(VENV)/.installed-dev
	$(BIN)/python -m pytest

lint: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.installed-dev
	$(BIN)/mypy --strict commsim

docs: $(VENV)/.installed-dev
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

fill: $(VENV)/.installed-dev
	$(BIN)/python -m docs.tools.fill

check: lint types docs test

format: $(VENV)/.installed-dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(VENV)/.installed
	$(BIN)/python benchmarks/predict.py
	$(BIN)/python benchmarks/engine.py

clean:
	rm -rf $(VENV) dist build .mypy_cache .pytest_cache .ruff_cache .hypothesis .benchmarks

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) --editable .
	@touch $@

$(VENV)/.installed-dev: pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) --editable ".[dev]"
	@touch $@ $(VENV)/.installed
