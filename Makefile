# Everything a person or CI does here is one of these; `make` alone lists them.
# Needed beforehand: python3 >= 3.11, git, make. The rest is installed into .venv (and, for tests, from Debian's packages).

BIN := .venv/bin
SEEDS ?= 500

# Many tests mostly wait, for processes, timers and git: one process more than CI's two cores. In which order, and what
# stays together, is in tests/support/order.py and sharing.py. Compiled modules are kept, else each process compiles all anew.
PYTEST = PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -q -n $(or $(JOBS),3) --dist loadscope --no-loadscope-reorder

.DEFAULT_GOAL := help
.PHONY: help setup run test test-all check dev needs needs-all lint types layers pytest format bench bench-check screenshots soak lock clean

help: ## list these targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-11s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: ## make .venv with evermirror and its locked dependencies; quick the second time
	@tools/setup runtime

run: setup ## start all-in-one on a playground, or on yours: CATALOG=my-urls.txt, more flags in ARGS="…"
	@exec $(BIN)/evermirror up $(if $(CATALOG),--catalog "$(CATALOG)",--playground) $(ARGS)

test: dev needs lint types layers pytest ## everything CI runs: lint, types, layers, all tests

test-all: dev needs-all ## campaigns, about 15 min: real-shaped repositories, dead lists, every git client; CI runs them after test
	@$(PYTEST) -n $(or $(JOBS),2) -m campaign $(ARGS)

check: dev lint types layers ## the quick part: lint, types, layers, tests that are not slow
	@$(PYTEST) -m "not slow" $(ARGS)

lint: dev ## ruff: rules and format
	@$(BIN)/ruff check
	@$(BIN)/ruff format --check

types: dev ## mypy, strict, on the package
	@$(BIN)/mypy

layers: dev ## imports go one way
	@$(BIN)/lint-imports

format: dev ## let ruff rewrite what it can
	@$(BIN)/ruff check --fix
	@$(BIN)/ruff format

bench: dev needs ## measure against the alternatives (about 22 min) for docs/benchmarks.md; BENCH="poll sync" for some, ARGS=--quick
	@$(BIN)/python -m bench $(BENCH) $(ARGS)

bench-check: dev ## what got worse beyond noise: OLD=docs/benchmarks.json against NEW=the newest in bench/results
	@$(BIN)/python -m bench.check $(if $(or $(OLD),$(NEW)),"$(or $(OLD),docs/benchmarks.json)") $(if $(NEW),"$(NEW)")

screenshots: dev needs ## the pictures of the dashboard in docs/images, from a real house
	@$(BIN)/python -m tests.browser.screenshots

soak: dev ## thousands of simulated fleets in rough weather, hours on end: SEEDS=500 in each climate
	@$(BIN)/python tools/soak --seeds $(SEEDS) --jobs $(or $(JOBS),2) $(ARGS)

lock: dev ## renew the locked versions from pyproject.toml
	@tools/lock

clean: ## remove .venv, caches and build results; data and mirrors stay
	@rm -rf .venv .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis dist build bench/results
	@find src tests bench -name __pycache__ -type d -prune -exec rm -rf {} +

# Used by the targets above.
dev:
	@tools/setup dev

needs:
	@tools/test-needs

needs-all:
	@tools/test-needs campaigns

pytest: dev
	@$(PYTEST) $(ARGS) || $(BIN)/python tools/second-look $$?
