# make demo   a virtual environment, the install, and a model fine-tuned, scored and asked, in about three minutes
# make test   the same environment with the test tools, then style, types and the whole suite
# make journeys   what a person types, in fresh processes: every command of README.md and docs/, nothing switched off
# make clean  remove the environment and what the demo wrote

PYTHON ?= python3
VENV ?= .venv
DEMO_RUN ?= runs/demo
BIN := $(VENV)/bin

.PHONY: demo install test journeys check clean help

help:
	@sed -n 's/^# //p' Makefile

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "$(PYTHON) is older than 3.11; run: make PYTHON=/path/to/python3.11"; exit 2; }
	$(PYTHON) -m venv $(VENV)

# torch comes first and by itself, so that its pinned build is there before anything else asks for it.
$(VENV)/installed: $(BIN)/python pyproject.toml constraints.txt
	$(BIN)/pip install --quiet -c constraints.txt torch
	$(BIN)/pip install --quiet -c constraints.txt -e .
	@touch $@

$(VENV)/installed-test: $(VENV)/installed
	$(BIN)/pip install --quiet -c constraints.txt -e '.[test]'
	@touch $@

install: $(VENV)/installed

demo: $(VENV)/installed
	@SEQFIT=$(BIN)/seqfit RUN=$(DEMO_RUN) sh demo/run.sh

check: $(VENV)/installed-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

test: check
	$(BIN)/python -m pytest -n 2 --dist worksteal -m 'not journey'

# Two at a time on a core each, each in its order, as a person types it: most of their time is imports, or waiting.
journeys: $(VENV)/installed-test
	$(BIN)/python -m pytest -m journey -p no:randomly -n 2 --dist loadscope -vv --durations 60

clean:
	rm -rf $(VENV) $(DEMO_RUN)
