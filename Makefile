# Everything that a person types to build and try Tombolo. `make` alone lists it.
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory
SHELL := /bin/bash

export CARGO_TARGET_DIR ?= $(CURDIR)/target

.PHONY: help demo test test-node soak chaos load fuzz mutants binaries dist lint language docs pictures fmt tools

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: ## shows kubectl, an outage, a denial and an admin.conf with two edge clusters until Ctrl-C (CI=1: once; SERVERS=3: of several servers; WORKER=1: a worker with node-lb, as root; TENANT=1: two tenants of a host cluster, as root; DEMO_FLAGS=--help)
	@CI=$(CI) exec .ci/demo $(if $(SERVERS),--servers $(SERVERS)) $(if $(WORKER),--worker) $(if $(TENANT),--tenant) $(DEMO_FLAGS)

test: ## sets everything up and runs all tests (TEST_THREADS=N limits how many run at once)
	@.ci/test

test-node: ## sets everything up and runs the trials with real nodes and pods alone, which `make test` runs too
	@.ci/test-node

soak: ## runs the long trials, half an hour, the end-to-end tests over TCP, and every minor of kubectl (built once: half an hour)
	@.ci/soak

chaos: ## tries every fault of docs/faults.md and writes what it saw there, then outages, over an hour (CHAOS_FLAGS="--row 31 --seed 7" or "outage --lengths 3,30": one alone)
	@.ci/chaos

load: ## measures everything in miniature, release build (LOAD_FLAGS="leak --plots plots": docs/measuring.md)
	@.ci/load

fuzz: ## runs every fuzz target for a minute, guided by coverage (FUZZ_FLAGS="--seconds 600 --crate proto frames")
	@.ci/fuzz $(FUZZ_FLAGS)

mutants: ## breaks what decides who may do what in every small way, and says which breaks no unit test has noticed (MUTANTS_FLAGS="--package policy")
	@.ci/mutants $(MUTANTS_FLAGS)

binaries: ## builds the programs under test, for running single tests with cargo
	@.ci/binaries

dist: ## makes the files of a release in target/dist: a quarter of an hour and more (DIST_FLAGS="--dry-run", "--twice", --help)
	@.ci/dist $(DIST_FLAGS)

lint: ## formatting, clippy, documentation, dependencies: what .ci/run checks before the tests
	@.ci/lint

language: ## prints figures about sentences and names, before and after a change (LANGUAGE_FLAGS="--list --path docs")
	@cargo run --locked --quiet --package tests --bin tombolo-language -- $(LANGUAGE_FLAGS)

docs: ## builds the documentation into target/site, and finds dead links
	@.ci/docs

pictures: ## records the demo and `tombolo --help`, and draws docs/pictures (PICTURES_FLAGS=help: one alone)
	@.ci/pictures $(PICTURES_FLAGS)

fmt: ## formats the sources
	@cargo fmt --all

tools: ## builds cargo-deny and cargo-machete into target/tools, once
	@.ci/tools
