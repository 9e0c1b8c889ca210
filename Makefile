# The README's two commands. Each makes a virtual environment, installs, and does its job from nothing.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check install --quiet --constraint constraints.txt

.PHONY: demo check

demo: $(VENV)/demo-installed
	$(BIN)/cosilo run examples/flights.toml

check: $(VENV)/check-installed
	PATH="$(CURDIR)/$(BIN):$$PATH" scripts/check

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/demo-installed: $(BIN)/python pyproject.toml constraints.txt
	$(PIP) --editable .
	touch $@

$(VENV)/check-installed: $(BIN)/python pyproject.toml constraints.txt
	$(PIP) --editable '.[dev]'
	touch $@
