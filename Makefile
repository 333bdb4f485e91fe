# Two commands do everything on a fresh machine with Python 3.11 or newer, make and git: `make demo` and `make test`.

# the first that runs and is new enough: a shim on PATH may stand for nothing
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11; do $$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo $$p; break; }; done)
VENV := .venv
BIN := $(VENV)/bin

.PHONY: demo test test-real bench bench-census crash soak format clean

demo: $(VENV)/installed
	@$(BIN)/acpmux demo

test: $(VENV)/installed-dev
	$(BIN)/ruff check src tests bench
	$(BIN)/ruff format --check src tests bench
	$(BIN)/pyright
	$(BIN)/pytest

test-real: $(VENV)/installed-dev
	$(BIN)/python tests/real/install.py
	$(BIN)/pytest tests/real --timeout=600

bench: $(VENV)/installed-dev
	$(BIN)/python bench/run.py

# half an hour or more: real servers under real agents, work of all kinds, the race, the cost
bench-census: $(VENV)/installed-dev
	$(BIN)/python bench/census_servers.py
	for load in 0 100 1000; do $(BIN)/python bench/census_others.py --load $$load || exit 1; done
	$(BIN)/python bench/retire_race.py --tries 4000 --at-once 3
	$(BIN)/python bench/retire_race.py --tries 1000 --load 1000
	$(BIN)/python bench/census_cost.py

crash: $(VENV)/installed-dev
	$(BIN)/python bench/crash.py --random 470 --records 20 --hosts 180 --both 120

MINUTES ?= 10
soak: $(VENV)/installed-dev
	$(BIN)/python bench/soak.py --minutes $(MINUTES)

format: $(VENV)/installed-dev
	$(BIN)/ruff check --fix src tests bench
	$(BIN)/ruff format src tests bench

clean:
	rm -rf $(VENV) .pytest_cache .ruff_cache .hypothesis build dist

$(VENV)/bin/python:
	@test -n "$(PYTHON)" || { echo "acpmux needs Python 3.11 or newer, and none is on PATH. Try: make PYTHON=/path/to/python3.11"; exit 1; }
	@$(PYTHON) -m venv $(VENV) || { echo "Python's venv is missing. On Debian: apt-get install python3-venv"; rm -rf $(VENV); exit 1; }

$(VENV)/installed: $(VENV)/bin/python pyproject.toml
	@echo "setting up $(VENV) ..."
	@$(BIN)/pip install --quiet --disable-pip-version-check -e .
	@touch $@

$(VENV)/installed-dev: $(VENV)/bin/python pyproject.toml
	@echo "setting up $(VENV) for tests ..."
	@$(BIN)/pip install --quiet --disable-pip-version-check -e '.[dev]'
	@touch $@ $(VENV)/installed
