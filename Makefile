# One command each. Everything runs in .venv, which is made when it is first needed.

PYTHON ?= python3
JOBS ?= 2
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
EXTRAS := recipes,plot,checkpoints,ray,dev

# What a shell has set up for another project must not leak in. Without bytecode files, every process would compile
# Syncline's modules again when it starts.
unexport PYTHONPATH PYTHONHOME PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help venv tools train test test-all check format bench matrix soak chaos docs wheel clean

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

venv: $(INSTALLED) ## make .venv and install what development needs

$(INSTALLED): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo 'Syncline needs Python 3.11 or newer; name one with: make PYTHON=python3.12 ...' >&2; exit 1; }
	@echo '== making $(VENV) with [$(EXTRAS)]: a few minutes the first time'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install -qq -c constraints.txt -e '.[$(EXTRAS)]'
	@touch $@

tools: ## install ip, tc and nft, for tests with network namespaces
	@if command -v ip && command -v tc && command -v nft; then exit; fi >/dev/null; \
		echo '== installing iproute2 and nftables'; \
		apt-get install -qq --no-install-recommends iproute2 nftables

train: $(INSTALLED) ## train for real: one process, DDP and Syncline, with a slow worker
	@echo '== train: digits-cnn, one process, DDP and Syncline; four workers, one of them slow'
	@$(BIN)/syncline train --compare

test: $(INSTALLED) ## run the tests, without the slow ones
	@echo '== pytest'
	@$(BIN)/python -m pytest -q -n $(JOBS) --dist worksteal -m 'not slow'

test-all: $(INSTALLED) ## run all tests
	@echo '== pytest, all'
	@$(BIN)/python -m pytest -q -n $(JOBS) --dist worksteal

check: $(INSTALLED) ## lint, format, types, import contracts
	@echo '== ruff check'
	@$(BIN)/ruff check --quiet .
	@echo '== ruff format'
	@$(BIN)/ruff format --check --quiet --diff .
	@echo '== mypy'
	@$(BIN)/mypy
	@echo '== import contracts'
	@$(BIN)/lint-imports --no-logo

format: $(INSTALLED) ## rewrite the code as `make check` wants it
	@$(BIN)/ruff check --fix-only --quiet .
	@$(BIN)/ruff format .

bench: $(INSTALLED) ## measure
	@$(BIN)/python benchmarks/simulator.py
	@$(BIN)/syncline bench
	@$(BIN)/python benchmarks/codecs.py
	@$(BIN)/python benchmarks/rules.py
	@$(BIN)/python benchmarks/step.py

matrix: $(INSTALLED) ## train with every codec, both ways, under two sync models, in both lanes
	@$(BIN)/python -m pytest -q -n 2 -m slow tests/integration/test_codec_training.py

soak: $(INSTALLED) ## run the engine for ten minutes: memory stays flat, no update is lost
	@$(BIN)/python benchmarks/soak.py

chaos: $(INSTALLED) ## for ten minutes, kill and stop the processes of random runs: none may hang or lose an update
	@$(BIN)/python benchmarks/chaos

docs: $(INSTALLED) ## write docs/commands.md anew, and try what the documentation shows
	@$(BIN)/python docs/make_commands.py
	@$(BIN)/python -m pytest -q tests/integration/test_documentation.py

wheel: $(INSTALLED) ## build the wheel, install it elsewhere, try it
	@echo '== building the wheel'
	@rm -rf dist
	@PIP_CONSTRAINT='$(CURDIR)/constraints.txt' $(BIN)/python -m build --quiet --wheel --outdir dist .
	@ls dist
	@PYTHON='$(BIN)/python' .ci/smoke dist/syncline-*.whl

clean: ## remove .venv, builds and caches
	rm -rf $(VENV) build dist .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
