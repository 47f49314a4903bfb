# `make` or `make help` lists the targets. Each of them makes .venv when there is
# none, or when its lock file is newer. All it needs is Python 3.11+ and make.

# Where to bind, if not where config.toml and the environment say: make run PORT=9000. What the
# shell has exported under these names is not meant for us.
HOST    =
PORT    =
CONFIG ?= config.toml
# More for the command behind a target: make run ARGS="--workers 2", make test ARGS="-k headers"
ARGS   ?=
# The interpreter to make .venv with; found on PATH when not given.
PYTHON ?=

VENV   := .venv
BIN    := $(VENV)/bin
PY     := $(BIN)/python
STAMPS := $(VENV)/stamps
SUITE  := tests/conformance
IDENTITY := tests/identity
# Clients in Python, each with a lock file of its own.
CLIENTS := $(patsubst %/requirements.in,%,$(wildcard tests/interop/families/*/requirements.in))
# What npm leaves in a folder whose packages it has installed.
NPM    := node_modules/.package-lock.json
PIP    := $(PY) -m pip --disable-pip-version-check --quiet
# Every downloaded file must match a hash in the lock.
LOCKED := $(PIP) install --require-hashes
COMPILE := $(PY) -m uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
  --no-emit-index-url --no-header

# A .venv that was copied, or whose Python is gone, is made anew.
ifneq ($(shell cat $(STAMPS)/venv 2>/dev/null && $(PY) -c '' 2>&1),$(CURDIR))
  $(shell rm -rf $(STAMPS))
endif

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.SUFFIXES:

.PHONY: help
help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# --- targets ----------------------------------------------------------------

.PHONY: run
run: $(STAMPS)/runtime $(STAMPS)/tools ## serve tools/ at http://127.0.0.1:8000/mcp (PORT, HOST, CONFIG, ARGS)
	@exec $(PY) -m app serve --config $(CONFIG) $(if $(HOST),--host $(HOST)) $(if $(PORT),--port $(PORT)) $(ARGS)

.PHONY: test
test: $(STAMPS)/dev $(STAMPS)/tools $(SUITE)/$(NPM) $(IDENTITY)/$(NPM) ## run all tests, the conformance suite among them (ARGS)
	$(PY) -m pytest -n auto --maxprocesses 4 --dist loadfile --no-loadscope-reorder $(ARGS)

.PHONY: check
check: $(STAMPS)/dev $(STAMPS)/tools ## format, lint, types and import rules
	$(PY) -m ruff format --check .
	$(PY) -m ruff check .
	$(PY) -m mypy
	$(BIN)/lint-imports

.PHONY: format
format: $(STAMPS)/dev ## format the code and mend what the linter can
	$(PY) -m ruff format .
	$(PY) -m ruff check --fix .

.PHONY: conformance
conformance: $(STAMPS)/dev $(SUITE)/$(NPM) ## run the official MCP conformance suite and show its report (ARGS)
	$(PY) -m pytest -s -v $(SUITE) $(ARGS)

.PHONY: interop
interop: $(STAMPS)/dev ## drive clients that others wrote; without ARGS the table goes to docs/supported.md
	$(PY) -m tests.interop.families $(if $(ARGS),$(ARGS),--write docs/supported.md)

.PHONY: bench
bench: $(STAMPS)/bench ## measure speed and memory; without ARGS the figures go to docs/performance.md
	$(PY) -m benchmarks $(if $(ARGS),$(ARGS),--write docs/performance.md)

.PHONY: chaos
chaos: $(STAMPS)/dev ## what restarts, crashes and outages cost a fleet; without ARGS the figures go to docs/operations.md
	$(PY) -m tests.chaos chaos $(if $(ARGS),$(ARGS),--write docs/operations.md)

.PHONY: soak
soak: $(STAMPS)/dev ## five minutes of calls, listeners and edits, and what three replicas hold meanwhile (ARGS="--seconds 60")
	$(PY) -m tests.chaos soak $(ARGS)

.PHONY: key
key: $(STAMPS)/runtime ## make the secrets of docker-compose.yml that are missing, an API key among them (ARGS="--id NAME --scope S")
	@deploy/secrets.sh secrets
	@if [ -n '$(ARGS)' ] || [ ! -e secrets/api-keys.toml ]; then \
	  $(PY) -m app keys create --file secrets/api-keys.toml $(if $(findstring --id,$(ARGS)),,--id compose) $(ARGS); \
	else echo 'secrets/api-keys.toml is there; for another key: make key ARGS="--id NAME"' >&2; fi

.PHONY: setup
setup: $(STAMPS)/dev $(STAMPS)/tools ## only make .venv, with all that development needs

.PHONY: lock
lock: $(STAMPS)/dev ## resolve pyproject.toml into requirements/*.txt (ARGS=--upgrade for newer versions)
	$(COMPILE) $(ARGS) --extra dev --extra bench -o requirements/bench.txt pyproject.toml
	$(COMPILE) $(ARGS) --extra dev -c requirements/bench.txt -o requirements/dev.txt pyproject.toml
	$(COMPILE) $(ARGS) -c requirements/dev.txt -o requirements/runtime.txt pyproject.toml
	sed -n 's/^requires = \["\(.*\)"\].*/\1/p' pyproject.toml | $(COMPILE) $(ARGS) -o requirements/build.txt -
	for client in $(CLIENTS); do \
	  $(COMPILE) $(ARGS) -o $$client/requirements.txt $$client/requirements.in && \
	  { echo "# Made by \`make lock\` from requirements.in; not edited by hand."; \
	    grep -v '^# Made by' $$client/requirements.txt; } >$$client/requirements.tmp && \
	  mv $$client/requirements.tmp $$client/requirements.txt || exit 1; \
	done
	for lock in build runtime dev bench; do \
	  { echo "# Made by \`make lock\` from pyproject.toml; not edited by hand."; \
	    grep -v '^# Made by' requirements/$$lock.txt; } >requirements/$$lock.tmp && \
	  mv requirements/$$lock.tmp requirements/$$lock.txt || exit 1; \
	done

.PHONY: clean
clean: ## remove .venv, caches and build output
	rm -rf $(VENV) .interop $(SUITE)/node_modules $(IDENTITY)/node_modules build dist *.egg-info
	rm -rf .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# --- what the targets stand on ----------------------------------------------

$(STAMPS)/venv:
	@for python in $(or $(PYTHON),python3 python3.14 python3.13 python3.12 python3.11); do \
	  $$python -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || continue; \
	  echo "making $(VENV) with $$($$python --version)"; \
	  $$python -m venv --clear $(VENV) && mkdir -p $(STAMPS) && echo '$(CURDIR)' >$@ && exit 0; \
	  exit 1; \
	done; \
	echo 'No Python 3.11 or newer with its venv module is on PATH.' >&2; \
	echo 'Debian, Ubuntu: apt install python3-venv. Elsewhere: make PYTHON=/path/to/python3.13 ...' >&2; \
	exit 1

# The server alone, so that `make run` need not wait for the tools of development.
$(STAMPS)/runtime: requirements/build.txt requirements/runtime.txt pyproject.toml | $(STAMPS)/venv
	@echo 'installing the server into $(VENV)'
	@$(LOCKED) -r requirements/build.txt -r requirements/runtime.txt
	@$(PIP) install --no-deps --no-build-isolation --editable .
	@touch $@

$(STAMPS)/dev: requirements/dev.txt $(STAMPS)/runtime
	@echo 'installing what tests and checks need into $(VENV)'
	@$(LOCKED) -r requirements/dev.txt
	@touch $@

$(STAMPS)/bench: requirements/bench.txt $(STAMPS)/dev
	@echo 'installing what the benchmarks compare with into $(VENV)'
	@$(LOCKED) -r requirements/bench.txt
	@touch $@

# What the tools of this checkout need, at versions that agree with the server's own.
$(STAMPS)/tools: $(wildcard tools/requirements.txt) $(STAMPS)/runtime
	@if [ -f tools/requirements.txt ]; then \
	  echo 'installing tools/requirements.txt into $(VENV)'; \
	  sed -n 's/^\([A-Za-z0-9._-]*==[^ ;]*\).*/\1/p' requirements/runtime.txt >$(STAMPS)/constraints.txt && \
	  $(PIP) install -r tools/requirements.txt -c $(STAMPS)/constraints.txt; \
	fi
	@touch $@

# The conformance suite, and the OpenID provider of the tests.
%/$(NPM): %/package-lock.json | $(STAMPS)/dev
	@echo 'installing $*/package-lock.json into $*/node_modules'
	@cd $* && PATH="$(CURDIR)/$(BIN):$$PATH" npm ci --ignore-scripts --no-audit --no-fund --loglevel=error
	@touch $@
