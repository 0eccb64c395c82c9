# Every target sets up what it needs; `make help` lists them. PYTHON=/path/to/python chooses the interpreter.
#
# Stamps in .venv/ keep set-up from running again: packages follow constraints.txt, the extension follows the Rust
# sources and constraints.txt (which pins pip too: maturin asks it for --group, new in 25.1). gates/ and
# reference/gates_reference/ are imported from the checkout.
.DEFAULT_GOAL := help
SHELL := /bin/sh
PYTHON ?=
RUST := $(shell find rust -name target -prune -o -type f \( -name '*.rs' -o -name '*.toml' -o -name '*.lock' -o -name '*.pyi' -o -name '*.py' \) -print)
BIN := .venv/bin
CARGO := PYO3_PYTHON="$(CURDIR)/$(BIN)/python" cargo
MANIFEST := --manifest-path rust/Cargo.toml --locked
CALIBRATE = nice $(BIN)/gates calibrate
# Files with tests of a mark, so that pytest need not import the others: a quarter of a minute of `make test`.
MARKED = $$(grep -rlE --include='*.py' 'mark\.$(1)\b' tests)
SEEDS ?= 20

# Empty means unset. Thousands of interpreters start here, and without bytecode each compiles its modules anew: half a second of
# a command's 1.4, and 1.5 of 3 s where it imports MLX and mlx-lm.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: help setup check test lint bench bench-full prove calibrate generate report record
.DELETE_ON_ERROR:

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' Makefile

check: setup ## judge our own subjects: every gate, every case, at the strictest grade
	@$(BIN)/gates check --strict

# The kernels' tests compile beside the fast tests, which use one processor; an error of the compiler shows again at the end.
test: setup ## test the tool itself: pytest and cargo test
	@cargo test --quiet $(MANIFEST) --package rlkernels --no-run & $(BIN)/python -m pytest -m "fast and not alone" $(call MARKED,fast); ended=$$?; wait; exit $$ended
	@$(BIN)/python -m pytest --numprocesses=logical --maxprocesses=4 -m "not alone and not fast and not long" --durations=40 --durations-min=3
	@$(BIN)/python -m pytest -m alone $(call MARKED,alone)
	@cargo test --quiet $(MANIFEST) --package rlkernels

lint: setup ## format, lint and types, in Python and Rust
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-cache --no-logo >/dev/null || $(BIN)/lint-imports --no-cache
	@cargo fmt --manifest-path rust/Cargo.toml --all --check
	@rustfmt --edition 2024 --check benches/roofline.rs
	@$(CARGO) clippy --quiet $(MANIFEST) --all-targets -- -D warnings
	@RUSTDOCFLAGS="-D warnings" $(CARGO) doc --quiet $(MANIFEST) --package rlkernels --no-deps

bench: setup ## time HEAD with asv, beside the peers that are installed (BENCH=--here: the build in .venv, as CI does)
	@$(BIN)/python tools/bench.py $(BENCH)

bench-full: setup ## time kernels, trainers and HEAD in full, and record it under results; an hour
	@$(BIN)/gates peers sync
	@$(BIN)/gates bench kernels --full --processes 3 --record
	@$(BIN)/gates bench trainers --workload no-early-end,geometric,ragged,long-prompt,4-bit --record
	@$(BIN)/gates bench trainers --shape ten --record
	@$(BIN)/python tools/bench.py --record
	@$(BIN)/python tools/generate.py

prove: setup ## show that every gate catches its mutants (PROVE=--quick: as CI does, without sensitivities)
	@$(BIN)/gates prove $(PROVE)

calibrate: setup ## false positives of the gates of pure ops on one subject over 20 seeds; a minute (SEEDS=5: fewer)
	@$(CALIBRATE) --only pure --subject numpy --seeds $(SEEDS) --block $(SEEDS)

generate: setup ## write every page and table that is rendered from code or from recorded results; seconds
	@$(BIN)/python tools/generate.py

report: generate ## the same, and the pictures of the report and of the learning curves
	@$(BIN)/python tools/report_picture.py
	@$(BIN)/gates report results/learning/curves.jsonl --out results/learning/curves.svg

# The calibrations at its end take a night where no file has seeds of these gates' code yet: they begin where the recorded
# files end. One that is stopped goes on with its own command and --resume results/runs/calibrate-….jsonl --record.
record: setup ## check, judge the peers, prove in full, time, calibrate, and record it all on purpose
	@$(BIN)/python tools/kernel_proofs.py
	@nice $(BIN)/python tools/model_families.py
	@nice $(BIN)/python tools/long_proofs.py
	@nice $(BIN)/python tools/honest_proof.py
	@nice $(BIN)/python -m pytest -m long
	@nice $(BIN)/python tools/mutate_numpy_baseline.py --record || [ $$? -eq 1 ] # mutations that only the search shows
	@nice $(BIN)/python tools/diagnosis_proof.py
	@$(BIN)/gates check --record
	@$(BIN)/gates peers sync --require all
	@$(BIN)/gates peers check --record --require all
	@$(BIN)/python tools/xray_proof.py
	@$(BIN)/python tools/xray_mistakes.py
	@$(BIN)/gates check --subject rlox --require rlox --record || [ $$? -eq 1 ] # its departures are what is recorded
	@$(BIN)/gates prove --full --record
	@$(BIN)/python tools/learning.py
	@nice $(BIN)/python tools/comparison_proof.py
	@$(MAKE) bench-full
	@$(CALIBRATE) --only pure --seeds-up-to 1000 --block 100 --record
	@$(CALIBRATE) --only models --seeds-up-to 100 --block 10 --record
	@$(MAKE) report

setup: .venv/gates.stamp .venv/extension.stamp

# For set-up only: the environments of peers and of asv have pins of their own.
%.stamp: export PIP_CONSTRAINT := constraints.txt
%.stamp: export PIP_DISABLE_PIP_VERSION_CHECK := 1
%.stamp: export PIP_QUIET := 1

.venv/packages.stamp: constraints.txt
	@command -v cargo >/dev/null || { echo "cargo is missing: install Rust 1.89 or newer (rustup, or your system's rustc and cargo packages) and try again." >&2; exit 2; }
	@python=$$(tools/find-python $(PYTHON)) && "$$python" -m venv --clear .venv
	@$(BIN)/python tools/install_packages.py
	@touch $@

.venv/gates.stamp: .venv/packages.stamp pyproject.toml
	@$(BIN)/python -m pip install --no-deps --no-build-isolation --editable .
	@touch $@

.venv/extension.stamp: .venv/packages.stamp $(RUST)
	@command -v cargo >/dev/null || { echo "cargo is missing: install Rust 1.89 or newer (rustup, or your system's rustc and cargo packages) and try again." >&2; exit 2; }
	@env -u CONDA_PREFIX VIRTUAL_ENV="$(CURDIR)/.venv" $(BIN)/maturin develop --quiet --release --locked --manifest-path rust/rlkernels-python/Cargo.toml
	@$(BIN)/python -m pip check
	@touch $@
