# Every target sets up what it needs; `make help` lists them. PYTHON=/path/to/python chooses the interpreter.
#
# Stamps in .venv/ keep set-up from running again: packages follow constraints.txt, the extension follows the Rust
# sources, pyproject.toml and constraints.txt (which pins pip too: maturin asks it for --group, new in 25.1). gates/ and reference/ are imported from the checkout.
.DEFAULT_GOAL := help
SHELL := /bin/sh
PYTHON ?=
RUST := $(shell find rust -name target -prune -o -type f \( -name '*.rs' -o -name '*.toml' -o -name '*.lock' -o -name '*.pyi' -o -name '*.py' \) -print)
BIN := .venv/bin
CARGO := PYO3_PYTHON="$(CURDIR)/$(BIN)/python" cargo
MANIFEST := --manifest-path rust/Cargo.toml --locked

.PHONY: help setup check test lint bench prove report record
.DELETE_ON_ERROR:

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' Makefile

check: setup ## judge our own subjects: every gate, every case
	@$(BIN)/gates check

test: setup ## test the tool itself: pytest and cargo test
	@$(BIN)/python -m pytest
	@cargo test --quiet $(MANIFEST) --package rlkernels

lint: setup ## format, lint and types, in Python and Rust
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@cargo fmt --manifest-path rust/Cargo.toml --all --check
	@$(CARGO) clippy --quiet $(MANIFEST) --all-targets -- -D warnings

bench: setup ## time HEAD with asv and record it under results/asv
	@$(BIN)/python .ci/bench.py

prove: setup ## show that every gate catches its mutants
	@$(BIN)/gates prove

report: setup ## render results/REPORT.md again from the recorded results
	@$(BIN)/gates report results/gates/*.jsonl --out results/REPORT.md

record: setup ## check, judge the peers and prove in full, and record the results on purpose
	@$(BIN)/python .ci/kernel_proofs.py
	@$(BIN)/gates check --record
	@$(BIN)/gates peers sync mlxrl
	@$(BIN)/gates check --subject mlxrl --require mlxrl --record || [ $$? -eq 1 ] # its departures are what is recorded
	@$(BIN)/gates prove --full --record
	@$(BIN)/gates report results/gates/*.jsonl --out results/REPORT.md

setup: .venv/extension.stamp

# For set-up only: the environments of peers and of asv have pins of their own.
%.stamp: export PIP_CONSTRAINT := constraints.txt
%.stamp: export PIP_DISABLE_PIP_VERSION_CHECK := 1
%.stamp: export PIP_QUIET := 1

.venv/packages.stamp: constraints.txt
	@command -v cargo >/dev/null || { echo "cargo is missing: install Rust 1.88 or newer (rustup, or your system's rustc and cargo packages) and try again." >&2; exit 2; }
	@python=$$(.ci/find-python $(PYTHON)) && "$$python" -m venv --clear .venv
	@$(BIN)/python -m pip install --requirement constraints.txt
	@touch $@

.venv/extension.stamp: .venv/packages.stamp pyproject.toml $(RUST)
	@command -v cargo >/dev/null || { echo "cargo is missing: install Rust 1.88 or newer (rustup, or your system's rustc and cargo packages) and try again." >&2; exit 2; }
	@env -u CONDA_PREFIX VIRTUAL_ENV="$(CURDIR)/.venv" $(BIN)/maturin develop --quiet --release --locked --manifest-path rust/rlkernels-python/Cargo.toml
	@$(BIN)/python -m pip check
	@touch $@
