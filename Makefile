# Every task of this repository. `make` alone lists them; each sets up .venv when it must.

PYTHON ?= python3
JOBS ?= 3
TESTS ?= tests
PYTEST_ARGS ?=
BENCH_ARGS ?=
CHAOS_ARGS ?=

BIN := .venv/bin
PIP_INSTALL := $(BIN)/python -m pip install -qq --no-input --disable-pip-version-check

.NOTPARALLEL:
.PHONY: help demo test check fmt bench chaos clean .venv

help: ## list what make can do
	@echo "make TARGET, where TARGET is one of:"
	@sed -nE 's/^([a-z]+):.*## (.*)/  \1|\2/p' Makefile | awk -F'|' '{ printf "%-8s %s\n", $$1, $$2 }'

demo: .venv/.runnable ## watch jobs succeed, fail, come back and die, in half a minute
	@$(BIN)/yaoki demo

test: .venv/.ready ## run the tests (TESTS=path::name, PYTEST_ARGS='-k word -x', JOBS=4)
	@$(BIN)/python -m pytest -n $(JOBS) --dist=worksteal $(PYTEST_ARGS) $(TESTS)

check: .venv/.ready ## check formatting, lint, types and the direction of imports
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy --strict
	@$(BIN)/lint-imports --no-logo

fmt: .venv/.ready ## format the code and repair what the linter can repair
	@$(BIN)/ruff check --fix-only .
	@$(BIN)/ruff format .

bench: .venv/.ready ## measure against the limits of this machine (BENCH_ARGS='…')
	@$(BIN)/python -m bench $(BENCH_ARGS)

chaos: .venv/.ready ## kill and cut off workers for minutes, then count the jobs (CHAOS_ARGS='…')
	@$(BIN)/python -m chaos $(CHAOS_ARGS)

clean: ## remove .venv, caches and build results
	rm -rf .venv build dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# The virtual environment: .runnable has what users get, .ready has the tools as well.

.venv: .venv/.ready

.venv/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "yaoki needs Python 3.11 or newer; name one: make PYTHON=python3.13 …" >&2; exit 1; }
	@echo "Making .venv …"
	@$(PYTHON) -m venv .venv || { rm -rf .venv; exit 1; }

.venv/.runnable: pyproject.toml constraints.txt | .venv/bin/python
	@echo "Installing yaoki in .venv …"
	@$(PIP_INSTALL) -c constraints.txt -e '.[cli]'
	@touch $@

.venv/.ready: pyproject.toml constraints.txt | .venv/bin/python
	@echo "Installing yaoki and its development tools in .venv …"
	@$(PIP_INSTALL) -c constraints.txt -e '.[dev]'
	@touch .venv/.runnable $@
