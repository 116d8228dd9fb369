# Ottla: make run (serve on 127.0.0.1:9092), make test (lint and tests). `make help` lists the rest.
SHELL := /usr/bin/env bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

# Another one can be named: make PYTHON=/path/to/python3.
PYTHON ?= $(shell tools/find_python.sh)
VENV := .venv
BIN := $(VENV)/bin
PIP_INSTALL := $(BIN)/pip install --quiet --disable-pip-version-check

# Kafka's jars: another directory that holds them can be named in the environment.
export OTTLA_KAFKA_JARS ?= $(abspath .cache/kafka)
# Tests take their seeds from the sources (tests/seeds.py); Python's own hashes must not differ either.
export PYTHONHASHSEED ?= 0
# Arguments for pytest, such as ARGS="-k codec tests/compat".
ARGS ?=
# Sources are compiled ahead: where PYTHONDONTWRITEBYTECODE is set, each start would compile them anew.
COMPILE := $(BIN)/python -m compileall -q src
# Processes that run the tests: one more than cores, for they wait half of the time (for a JVM, a disk, a time-out).
JOBS ?= 3

.PHONY: help setup run test-setup test unit compat lint format bench bench-clients bench-spark chaos sim kafka-jars kcat \
	coverage-table lock wheel clean

help: ## This list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/make \1\t\2/p' Makefile | expand -t 24

# ------------------------------------------------------------------------------------------ setup
setup: $(VENV)/setup.stamp $(VENV)/native.stamp ## A virtual environment with the locked runtime and .venv/bin/ottla

$(VENV)/python.stamp:
	@command -v $(PYTHON) >/dev/null || { echo "Python 3.11 or newer is needed: make PYTHON=/path/to/python3"; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit("Python 3.11 or newer is needed" if sys.version_info < (3, 11) else 0)'
	@echo "setup: virtual environment in $(VENV)"
	@$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/lock.stamp: requirements/lock.txt $(VENV)/python.stamp
	@echo "setup: runtime from requirements/lock.txt"
	@$(PIP_INSTALL) --require-hashes --only-binary :all: --no-deps -r requirements/lock.txt
	@touch $@

# Where there is a compiler; without one it says so, and Python does it all.
$(VENV)/native.stamp: $(wildcard src/ottla/native/*.[ch]) src/ottla/native/build.py $(VENV)/setup.stamp
	@$(BIN)/python -m ottla.native.build
	@touch $@

$(VENV)/setup.stamp: pyproject.toml $(VENV)/lock.stamp
	@$(PIP_INSTALL) --no-deps --no-build-isolation --editable .
	@$(COMPILE)
	@touch $@

run: setup ## Serve on 127.0.0.1:9092 in the foreground (ARGS= goes to ottla serve)
	@$(COMPILE)
	@exec $(BIN)/ottla serve $(ARGS)

# ------------------------------------------------------------------------------------------ tests
$(VENV)/test.stamp: requirements/test-lock.txt $(VENV)/setup.stamp | $(VENV)/native.stamp
	@echo "test-setup: test tools from requirements/test-lock.txt"
	@$(PIP_INSTALL) --require-hashes --only-binary :all: --no-deps -r requirements/test-lock.txt
	@touch $@

# pyspark is published as a source archive only; it is unpacked without an index (its lock has its hash).
$(VENV)/spark.stamp: requirements/spark-lock.txt $(VENV)/test.stamp
	@echo "test-setup: Spark from requirements/spark-lock.txt (450 MB)"
	@$(PIP_INSTALL) --require-hashes --no-deps --no-build-isolation --prefer-binary -r requirements/spark-lock.txt
	@touch $@

test-setup: $(VENV)/spark.stamp kcat kafka-jars ## What the tests need beside the runtime

kcat: ## kcat from Debian, if it is missing
	@tools/install_kcat.sh

kafka-jars: ## Apache Kafka's jars from Maven into .cache/kafka, checked by sha256
	@tools/fetch_kafka.sh

test: test-setup ## Lint, then every test
	@$(MAKE) --no-print-directory lint
	@$(COMPILE)
	@sync # what setup has written, or the first tests that wait for the disk wait for that
	@$(BIN)/python -m pytest --numprocesses $(JOBS) --dist loadgroup --ignore tests/tidy $(ARGS)

unit: $(VENV)/test.stamp ## Only the tests that start no process
	@$(BIN)/python -m pytest tests/tidy tests/unit tests/property $(ARGS)

compat: test-setup ## Only the stock clients and tools (OTTLA_COMPAT_BOOTSTRAP=host:port judges another broker)
	@$(BIN)/python -m pytest tests/compat $(ARGS)

lint: $(VENV)/test.stamp ## ruff, mypy --strict, import-linter, the tidy test
	@$(BIN)/ruff check --quiet .
	@$(BIN)/ruff format --quiet --check .
	@$(BIN)/mypy --no-error-summary
	@$(BIN)/lint-imports --no-cache | sed -n '/KEPT\|BROKEN\|->/p'
	@$(BIN)/python -m pytest --quiet --no-header -p no:cacheprovider tests/tidy

format: $(VENV)/test.stamp ## Let ruff put the sources in shape
	@$(BIN)/ruff format --quiet .
	@$(BIN)/ruff check --quiet --fix .

# New seeds each time; `make test` takes its own from the sources.
SEEDS ?= 4000
CLUSTER_SEEDS ?= 20000
sim: $(VENV)/test.stamp ## In simulated time: new histories of a cluster (CLUSTER_SEEDS), groups, transactions (SEEDS); planted bugs
	@$(BIN)/python -m sim.cluster --seeds $(CLUSTER_SEEDS) --first $$((RANDOM * 32768 + RANDOM))
	@$(BIN)/python -m sim.cluster --mutants --seeds $(SEEDS)
	@$(BIN)/python -m sim.groups --seeds $(SEEDS) --first $$((RANDOM * 32768 + RANDOM))
	@$(BIN)/python -m sim.transactions --seeds $(SEEDS) --first $$((RANDOM * 32768 + RANDOM))

# Each part by itself: make chaos PARTS="node cluster".
PARTS ?= node groups cluster transactions client spark
CHAOS_node := tests/chaos/test_{crash_states,kill_broker,failing_disk,almost_full_disk,compaction_crash,move_crash,moving_replicas}.py
CHAOS_groups := tests/chaos/test_kill_groups.py
CHAOS_cluster := tests/chaos/test_cluster_{chaos,checker}.py tests/chaos/test_divided_network.py \
	tests/cluster/test_rows_{acks,leaders,topics}.py
CHAOS_transactions := tests/chaos/test_{kill_transactions,kill_cluster_transactions,transaction_chaos,transaction_history,ids_used_once}.py
CHAOS_client := tests/client tests/unit/client/test_produce_world.py
CHAOS_spark := tests/spark/test_{crashes,sink_cluster,commands}.py \
	tests/chaos/spark/{deaths,executors,clusters,projects,resets,stock,fresh}.py
chaos: test-setup ## kill -9, crash states, a cluster in trouble, bad networks, at full length (hours; PARTS=... takes some of it)
	@OTTLA_KILLS=200 OTTLA_CRASH_STATES=20000 OTTLA_PRODUCE_SEEDS=5000 OTTLA_FAULT_SEEDS=1000 \
		OTTLA_PROCESS_DEATHS=100 OTTLA_PROCESS_KILLS=100 OTTLA_IDS_USED_ONCE=100000 OTTLA_CLUSTER_KILLS=200 OTTLA_GROUP_KILLS=100 \
		OTTLA_TRANSACTION_CHAOS_ROUNDS=200 \
		OTTLA_SPARK_FULL=1 OTTLA_CLIENT_THREE=1 OTTLA_CLUSTER_CHAOS_SECONDS=1800 \
		OTTLA_CLUSTER_PROCESSES=1 \
		$(BIN)/python -m pytest $(foreach part,$(PARTS),$(or $(CHAOS_$(part)),$(error PARTS has no $(part)))) $(ARGS)

bench: test-setup ## Ottla against Apache Kafka on this machine (QUICK=1: one short round)
	@$(BIN)/python -m bench $(if $(QUICK),--quick) $(ARGS)

bench-clients: test-setup ## Our Python client against the others, on one broker (QUICK=1: a tenth)
	@$(BIN)/python -m bench.by_client $(if $(QUICK),--quick) $(ARGS)

bench-spark: test-setup ## Our Spark source and sink against Spark's stock connector on Kafka (QUICK=1: minutes)
	@$(BIN)/python -m bench.spark $(if $(QUICK),--quick) $(ARGS)

# ------------------------------------------------------------------------------------ maintenance
coverage-table: setup ## Write docs/reference/api-coverage.md anew from the handlers
	@$(BIN)/python tools/api_coverage.py --write

lock: ## Write requirements/*lock.txt anew (UPGRADE=1 for the newest versions)
	@PYTHON=$(PYTHON) UPGRADE=$(UPGRADE) tools/lock.sh

wheel: setup ## A wheel in dist/
	@$(BIN)/python -m hatchling build --target wheel

clean: ## Remove what setup and tests left behind (not .cache/kafka)
	@rm -rf $(VENV) dist .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .cache/lock-venv
