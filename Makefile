# Two commands are all a newcomer needs: `make test` and `make report`.
# Each makes .venv by itself; the second time they start at once. `make quick` leaves out what is slow.
PYTHON ?= $(shell for p in python3.13 python3.12 python3.11 python3; do \
  command -v $$p >/dev/null 2>&1 && $$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo $$p; break; }; done)
TORCH := 2.13.0
BIN := .venv/bin
PIP := $(BIN)/python -m pip install -qq --disable-pip-version-check
JOBS ?= 2
export OTFORMER_DATA ?= $(abspath $(wildcard ../shared/data))

.PHONY: test quick report docs paper mutations fuzz faults lint types unit proofs test-gpu install-test constraints clean

test: lint types proofs unit

quick: lint types
	@echo "── pytest: all but what is marked slow, $(JOBS) processes"
	@OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(JOBS) -m "not gpu and not slow"

lint: .venv/ready
	@echo "── ruff: style, common mistakes and format"
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --quiet --check src tests bench

types: .venv/ready
	@echo "── mypy: types"
	@$(BIN)/mypy

unit: .venv/ready
	@echo "── pytest: unit tests and docstring examples, $(JOBS) processes"
	@OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(JOBS) --dist loadfile -m "not gpu"

# Without Coq this fails when it is asked for, by name or by OTFORMER_REQUIRE (tests/needs.py); else it says so and goes on.
proofs:
	@echo "── proofs: Coq compiles proofs/*.v and names the axioms"
	@$(PYTHON) proofs/check.py$(if $(filter proofs,$(MAKECMDGOALS))$(findstring coq,$(OTFORMER_REQUIRE)),, --if-installed)

report: .venv/ready
	@echo "── otformer reproduce: every experiment that is not done yet or has changed, the report, and what is not as recorded"
	@OMP_NUM_THREADS=1 $(BIN)/otformer reproduce --resume --check --out report

docs: .venv/ready
	@echo "── mkdocs: the site, into build/site/index.html; it builds and opens without a network"
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet

paper: .venv/ready
	@echo "── typst: the note, into build/paper/otformer.pdf; its table is read from the recorded results"
	@$(BIN)/python docs/paper/make.py

# Each claim of the theory made stronger, in a copy; the tests that notice. Writes docs/theorem-tests.md. MUTATIONS="--only L" takes a few.
mutations: .venv/ready
	@echo "── mutations: every bound made 20 % stronger, and the test that fails then"
	@OMP_NUM_THREADS=1 PYTHONPATH=tests $(BIN)/python -m mutations $(MUTATIONS)

# Bounded by cases and time; FUZZ="--only sort --first 17 --cases 1" runs one case again (tests/fuzz/__main__.py).
fuzz: .venv/ready
	@echo "── fuzz: hostile input for the public functions and the command line"
	@OMP_NUM_THREADS=1 PYTHONPATH=tests $(BIN)/python -m fuzz $(FUZZ)

# Bounded by rounds and time; FAULTS="--only train --kills 5" kills one command five times (tests/faults/__main__.py).
faults: .venv/ready
	@echo "── faults: commands are killed, run twice at once, on a full disk, with a clock that jumps; then given again"
	@OMP_NUM_THREADS=1 PYTHONPATH=tests $(BIN)/python -m faults $(FAULTS)

# On a machine with a CUDA device and its own torch: no set-up, the source tree is used as it is. Files without a test marked
# gpu are not read: what they import may not be there.
test-gpu:
	PYTHONPATH=src $(PYTHON) -m pytest -m gpu -p no:cacheprovider $$(grep -rl --include='*.py' 'mark\.gpu' tests)

# What is downloaded must have the hashes in constraints/setup.txt; torch alone has none (see constraints/setup.in).
.venv/ready: pyproject.toml Makefile constraints/setup.txt
	@test -n "$(PYTHON)" || { echo "otformer needs Python 3.11 or newer; set PYTHON=/path/to/python"; exit 1; }
	@echo "── set-up: .venv with $$($(PYTHON) --version), torch $(TORCH), then otformer and its tools (minutes, once)"
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@$(PIP) --require-hashes --no-deps -r constraints/setup.txt
	@$(PIP) torch==$(TORCH)
	@$(PIP) --no-deps --no-build-isolation -e .
	@if command -v npm >/dev/null; then npm ci --prefix tests/browser --no-audit --no-fund --loglevel=error >/dev/null; else \
	  echo "set-up: there is no npm"; fi || echo "set-up: npm could not install axe-core"
	@touch $@

# The wheels of packages/ in clean venvs without extras, for every Python from 3.11 on that this machine has, and the tests of
# each package; downloads what they need.
install-test: .venv/ready
	@echo "── install: three wheels, in clean environments"
	@$(BIN)/python tests/install/packages.py

# After a change of pyproject.toml: versions that are there stay; without setup.txt all are the newest. Needs uv (pip install uv).
constraints:
	@uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --no-annotate \
	  --extra dev --extra ray --extra docs --override constraints/left_out.txt \
	  pyproject.toml constraints/setup.in -o constraints/setup.txt

clean:
	rm -rf .venv report build tests/browser/node_modules src/*.egg-info .pytest_cache .mypy_cache .ruff_cache
