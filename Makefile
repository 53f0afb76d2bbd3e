# Commands for people and for CI; `make help` lists them.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

PYTHON ?= python3
UV_VERSION := 0.13.8
WORKERS ?= $(shell n=$$(nproc 2>/dev/null || echo 2); echo $$((n < 2 ? 2 : n > 8 ? 8 : n)))
TRIALS ?= 20000
SECONDS ?= 3600
SEED ?= 0
CDK_ARGS ?=

# uv: the one on the search path, else one that `make install` puts into .tools.
UV ?= $(or $(shell command -v uv 2>/dev/null),$(CURDIR)/.tools/bin/uv)
export UV
export PATH := $(CURDIR)/.tools/bin:$(PATH)

# Python keeps what it has compiled: without it, every process that a test starts compiles all that it imports.
unexport PYTHONDONTWRITEBYTECODE

# jsii prints a banner for every Node release that it no longer tests; the tests here do.
export JSII_SILENCE_WARNING_END_OF_LIFE_NODE_VERSION ?= 16,18,19,20,21,23,25

VENV := .venv/bin
TORCH := build/torch
# W&B and MLflow, which make inputs of tests: an environment of their own.
TOOLS := build/tools
IMAGE := deploy/image
# Helm, schemas of Kubernetes and linters: an environment of their own.
CLUSTERS := build/clusters
AUDIT := build/audit
PYTEST := $(VENV)/python -m pytest
CDK := node_modules/.bin/cdk
INSTALLED := .venv/.installed node_modules/.installed
QUICK := "not thorough and not perf and not tools and not verdicts"

# Tests that read documents and sources, and run nothing: a part of `make lint`.
STRUCTURE := $(addprefix tests/,$(addsuffix .py, \
  $(addprefix infra/test_,docs_commands docs_links docs_pictures docs_reference docs_safety docs_site workflows sentences_are_not_read words) \
  collector/test_oldest_python unit/test_docs_parameters unit/cli/test_rooms unit/rules/training/test_docs))

.PHONY: help install lint types structure format unit test tests test-tools test-torch test-clusters verdicts goals scoreboard bench scale soak bench-collector bench-hta bench-smdebug thorough fuzz mutants snapshot audit docs pictures lock demo demo-collect emulator image synth deploy release destroy clean

help:  ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-15s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

install: $(INSTALLED)  ## Install the pinned Python and Node packages; at once when nothing changed

.venv/.installed: pyproject.toml collector/pyproject.toml uv.lock
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "$(PYTHON) is older than Python 3.11: install a newer one, or run make with PYTHON=/path/to/python" >&2; exit 1; }
	@test -x "$(UV)" || { $(PYTHON) -m venv .tools && .tools/bin/pip install --quiet uv==$(UV_VERSION); }
	@test -x $(VENV)/python || "$(UV)" venv --quiet --python "$$(command -v $(PYTHON))" .venv
	"$(UV)" sync --frozen
	@touch $@

node_modules/.installed: package-lock.json
	@command -v npm >/dev/null || { echo "npm is missing: install Node.js 20 or newer, which brings it" >&2; exit 1; }
	npm ci --no-audit --no-fund
	@touch $@

lint: install  ## Check style, format, types, directions of imports, and that documents say what the code does
	@$(MAKE) --no-print-directory -j 2 --output-sync=target types structure

types:
	$(VENV)/mypy

structure:
	$(VENV)/ruff check .
	$(VENV)/ruff format --check .
	$(VENV)/lint-imports --no-cache
	$(PYTEST) $(STRUCTURE) -q

format: install  ## Repair style and format where that is safe
	$(VENV)/ruff check --fix .
	$(VENV)/ruff format .

unit: install  ## Run the unit tests, in less than a minute
	$(PYTEST) tests/unit -q -n $(WORKERS) --dist loadscope -m $(QUICK) $(addprefix --ignore=,$(STRUCTURE))

test: install  ## Run `make lint` and every test: unit, property, functional, infrastructure, documents, deployed stack
	@$(MAKE) --no-print-directory -j 2 types tests

tests: structure
	$(PYTEST) -n $(WORKERS) --dist loadscope --durations 20 -m $(QUICK) $(addprefix --ignore=,$(STRUCTURE))

$(TORCH)/.installed: tests/torch/requirements.lock
	"$(UV)" venv --quiet --clear --python $(VENV)/python $(TORCH)
	"$(UV)" pip install --quiet --require-hashes --python $(TORCH)/bin/python -r $<
	@touch $@

test-torch: install $(TORCH)/.installed  ## Run the recorder's tests with torch, which lies in an environment of its own
	PYTHONPATH=.:collector:rules_layer $(TORCH)/bin/python -m pytest tests/torch -n $(WORKERS) --dist loadscope -m torch

$(TOOLS)/.installed: tests/tools/requirements.lock
	"$(UV)" venv --quiet --clear --python $(VENV)/python $(TOOLS)
	"$(UV)" pip install --quiet --require-hashes --python $(TOOLS)/bin/python -r $<
	@touch $@

test-tools: install $(TOOLS)/.installed  ## Make inputs of tests with W&B and MLflow themselves, and read them
	$(PYTEST) tests/tools -n 0 -m tools

$(CLUSTERS)/.installed: tests/clusters/requirements.lock
	"$(UV)" venv --quiet --clear --python $(VENV)/python $(CLUSTERS)
	"$(UV)" pip install --quiet --require-hashes --python $(CLUSTERS)/bin/python -r $<
	@touch $@

test-clusters: install $(CLUSTERS)/.installed  ## Render, check and parse what `deploy` holds, and run Slurm where it is installed
	$(PYTEST) tests/clusters -n 0 -m tools

thorough: install  ## Run 1,000 examples of each property, TRIALS=20000 of faults, each fuzz target, all deployed journeys
	$(PYTEST) -n $(WORKERS) --dist worksteal -m hypothesis --hypothesis-profile long
	TRIALS=$(TRIALS) $(PYTEST) -n $(WORKERS) --dist worksteal -m "thorough and not localstack"
	$(PYTEST) tests/localstack -m localstack

mutants: install  ## Draw small faults of the code for SECONDS=3600; fails when tests find less than 90 %
	$(VENV)/python -m tests.mutation --map
	$(VENV)/python -m tests.mutation --seconds $(SECONDS) --seed $(SEED)

fuzz: install  ## Fuzz every parser and function for SECONDS=3600; failing inputs lie in build/fuzz
	$(VENV)/python -m tests.fuzz --seconds $(SECONDS) --seed $(SEED)

verdicts: install  ## Say how good the verdicts are on jobs with known faults, and where they fail
	$(VENV)/python -m tests.verdicts.labelled
	$(VENV)/python -m tests.verdicts.training
	$(VENV)/python -m tests.verdicts.recorded_runs
	$(VENV)/python -m tests.verdicts.kernels
	$(VENV)/python -m tests.verdicts.planning

goals: install  ## Hold the verdicts on jobs with known faults and real runs at their goals, and all that is said at the raw data
	$(PYTEST) tests/verdicts tests/claims -m verdicts

bench: install  ## Measure what takes time: evaluation, reports, the page in a browser
	$(PYTEST) tests/perf tests/browser -m perf
	@test ! -x build/smdebug/bin/python || $(VENV)/python -m tests.perf.smdebug

scoreboard: install $(TORCH)/.installed  ## Judge all labelled sets, peers beside, and write docs/scoreboard.md
	$(VENV)/python -m tests.scoreboard

scale: install  ## Hold the sizing table against AWS's limits, and replay large jobs through the evaluator in memory
	$(VENV)/python -m tests.scale.drain
	$(VENV)/python -m tests.scale.replay 1 1440
	$(VENV)/python -m tests.scale.replay 128 60

soak: install  ## Run the functions for 24 h of a job on the emulator's stores, and say what grows
	$(VENV)/python -m tests.scale.soak

bench-collector: install $(TORCH)/.installed  ## Measure what the collector and the recorder cost the loop beside them
	$(VENV)/python -m tests.collector.bench
	PYTHONPATH=.:collector:rules_layer $(TORCH)/bin/python -m tests.torch.bench

bench-hta: install  ## Measure HolisticTraceAnalysis beside the reader of kernel traces; installs it below build
	$(VENV)/python -m tests.perf.hta

bench-smdebug: install  ## Measure smdebug beside the reader of debug-output; installs it below build
	$(VENV)/python -m tests.perf.smdebug

snapshot: install  ## Accept the template, the pictures and the recorded answers as they are now
	TRAINGUARD_ACCEPT_SNAPSHOT=1 $(PYTEST) tests/infra/test_snapshot.py tests/browser/test_pictures.py tests/answers tests/unit/rules/texts tests/functional/test_notebook.py

lock: install  ## Lock the dependencies, and those of the functions' layer
	"$(UV)" lock
	"$(UV)" export --frozen --quiet --no-dev --no-emit-project --extra stack --no-header --format pylock.toml --output-file infra/layer.pylock.toml

docs: install  ## Build the documents as a site into build/docs
	NO_MKDOCS_2_WARNING=1 $(VENV)/mkdocs build --strict
	@echo "Open $(CURDIR)/build/docs/index.html, or with its search: $(VENV)/python -m http.server --directory build/docs"

pictures: install  ## Photograph the pages for the documents, from the demo's jobs
	$(VENV)/python -m docs.pictures.screens

demo: install  ## Watch recorded training jobs from first profile to report, on the emulator
	$(VENV)/python -m demo

demo-collect: install  ## Watch a training of this machine under the collector, from first sample to report
	$(VENV)/python -m demo.collect

emulator: install  ## Run the emulator in the foreground and say how to reach it
	$(VENV)/python -m emulator.run

image: install  ## Build the collector's image with docker, for this machine's processor
	rm -rf $(IMAGE)/dist
	"$(UV)" build --quiet --no-create-gitignore --wheel --out-dir $(IMAGE)/dist collector
	docker build --tag trainguard-collector:dev $(IMAGE)
	docker run --rm --entrypoint /opt/trainguard/bin/python trainguard-collector:dev -I -c 'import grpc, trainguard_collector'

synth: install  ## Write the CloudFormation template to cdk.out
	$(CDK) synth --quiet $(CDK_ARGS)

deploy: install  ## Deploy to the account of the current credentials; CDK_ARGS="-c name=value" passes settings
	$(CDK) deploy $(CDK_ARGS)

$(AUDIT)/.installed: infra/audit.lock
	"$(UV)" venv --quiet --clear --python $(VENV)/python $(AUDIT)/env
	"$(UV)" pip install --quiet --require-hashes --python $(AUDIT)/env/bin/python -r $<
	@touch $@

audit: install $(AUDIT)/.installed  ## Ask the databases of known flaws about every locked package; 2 when one gives no answer
	$(VENV)/python -m infra.audit

release: install  ## Build wheel, layer, SBOM and a template without CDK into build/release; CDK_ARGS as for deploy
	$(VENV)/python -m infra.release $(CDK_ARGS)

destroy: install  ## Say what stays, then delete the stack; data stay unless it was deployed with -c retain_data=false
	$(VENV)/python -m infra.teardown $(CDK_ARGS)

clean:  ## Remove what was built, not what was installed
	rm -rf build cdk.out demo-output .pytest_cache .mypy_cache .ruff_cache .hypothesis .benchmarks
