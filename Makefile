# make demo, make test, make bench, make lint: each makes .venv first, once.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

# the newest Python there is, from 3.11 on
PYTHON ?= $(shell for python in python3.14 python3.13 python3.12 python3.11 python3; do \
	$$python -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 \
	&& { echo $$python; break; }; done)
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: help demo test bench lint clean

help: ## show this
	@sed -n 's/^\([a-z]*\):.*## /\1	/p' $(MAKEFILE_LIST) | expand -t 10

demo: $(STAMP) ## move an agent, both phases, sealed; pack one, into PostgreSQL and out; a Home too
	@PATH="$(CURDIR)/$(BIN):$$PATH" demo/run

test: $(STAMP) ## run the tests
	@PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python -m pytest -n auto $(ARGS)

bench: $(STAMP) ## measure, against the tools that do the like
	@PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python -m tests.benchmarks $(ARGS)

lint: $(STAMP) ## ruff, mypy, and mandoc over the man pages
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	mandoc -T lint -W warning man/*/*

clean: ## remove .venv and what tools have cached
	rm -rf $(VENV) .hypothesis .mypy_cache .pytest_cache .ruff_cache build dist
	find agentmove_tools tests -name __pycache__ -prune -exec rm -rf {} +

# An editable install copies the scripts of bin/ and the man pages, so a new or changed one is
# installed again. pip takes --group since 25.1: an older one, as ensurepip brings, is upgraded.
$(STAMP): pyproject.toml agentmove_tools/__init__.py $(wildcard bin/* man/*/*)
	@test -n "$(PYTHON)" || { echo "make: Python 3.11 or newer, with venv, is needed: on Debian, apt-get install python3-venv" >&2; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade 'pip>=25.1'
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable . --group dev
	@touch $@
