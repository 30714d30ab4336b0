# Everything that a person types to build and try Tombolo. `make` alone lists it.
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory
SHELL := /bin/bash

export CARGO_TARGET_DIR ?= $(CURDIR)/target

.PHONY: help test binaries lint fmt tools

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

test: ## sets everything up and runs all tests (TEST_THREADS=N limits how many run at once)
	@.ci/test

binaries: ## builds the programs under test, for running single tests with cargo
	@.ci/binaries

lint: ## formatting, clippy, documentation, dependencies: what .ci/run checks before the tests
	@.ci/lint

fmt: ## formats the sources
	@cargo fmt --all

tools: ## builds cargo-deny and cargo-machete into target/tools, once
	@.ci/tools
