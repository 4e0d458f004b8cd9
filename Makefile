# One environment (.venv, from requirements-dev.txt) and one in-place build. Each is made again only when its
# prerequisites change.

SHELL := /bin/bash
PYTHON ?= python3
# One more than the cores that continuous integration has: a quarter of a run waits.
WORKERS ?= 3
BIN := .venv/bin
ENVIRONMENT := .venv/.environment-stamp
BUILD := .venv/.build-stamp
CORE := setup.py pyproject.toml $(wildcard kstore/*.pyx kstore/*.h kstore/core/*.pxi kstore/core/*/*.pxi)
DEBUG_TREE := build/debug
DEBUG_TESTS := $(addprefix tests/,basics core env record coordinator log producer store arrow values cli hostile property differential fuzz golden)
# Also preload libstdc++: without it the sanitizer can't handle pyarrow's C++ exceptions.
UNDER_SANITIZERS = LD_PRELOAD="$$(gcc -print-file-name=libasan.so) $$(gcc -print-file-name=libstdc++.so)" \
	PYTHONMALLOC=malloc ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1 UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1
export PYTHON
export PIP_DISABLE_PIP_VERSION_CHECK := 1
export PIP_ROOT_USER_ACTION := ignore

.DEFAULT_GOAL := help
.PHONY: help demo docs test words bench bench-rivals bench-spark bench-serve bench-prepare bench-report bench-micro build lint interop planted fuzz fuzz-asan crash crash-serve powercut soak report-browser site-browser release-check release-files wheels-here long debug coverage clean require-java
.DELETE_ON_ERROR:

help:  ## list the targets
	@sed -n 's/^\([a-z-]*\):.*##  *\(.*\)/make \1|\2/p' Makefile | awk -F '|' '{printf "%-18s %s\n", $$1, $$2}'

demo: require-java build  ## run Spark on examples/flights and check the result against its manifest
	@$(BIN)/python examples/flights_demo.py

test: require-java build  ## run all tests except those marked long
	@$(BIN)/python -m pytest -n $(WORKERS)

docs: build  ## write the site to build/docs; a warning, a broken link or a public name without a line fails
	@$(BIN)/python -m tests.repo.site build/docs

bench: require-java build  ## run every benchmark, with its rivals, once
	@$(BIN)/python -m bench

bench-rivals: require-java build  ## the same with the Java and Rust programs, if Maven and cargo can build them
	@$(BIN)/python -m bench --rivals

bench-spark: require-java build  ## run the benchmarks of Spark: reads, writes, streams, UDFs; RIVALS=1 for Spark's Kafka connector too
	@$(BIN)/python -m bench $(if $(RIVALS),--rivals) --only spark --only spark_values --only pipeline --only udfs

bench-serve: require-java build  ## run kstore serve beside a broker of Kafka, which Maven has to fetch, in turns
	@$(BIN)/python -m bench --rivals --only serve

bench-prepare: require-java build  ## build the programs and most of the data of bench-rivals, measure nothing
	@$(BIN)/python -m bench prepare --rivals

bench-report: build  ## write what README.md, its chart and bench/README.md show of bench/results
	@$(BIN)/python -m bench report

bench-micro: build  ## time the compiled calls one by one, save the figures and compare them with the last saved ones
	@$(BIN)/python -m pytest -q -o addopts= bench/micro --benchmark-autosave --benchmark-columns=min,median,iqr,rounds \
		--benchmark-sort=name $(if $(wildcard .benchmarks/*/*.json),--benchmark-compare)

build: $(BUILD)  ## make the environment and build the extension in place

lint: build  ## check style, types, stubs and layers
	@$(BIN)/python -m pytest tests/repo/test_layering.py tests/repo/test_sourcecode.py

interop: build  ## let kstore and Kafka's own classes read what the other wrote; needs Maven and a JDK
	@$(BIN)/python -m tests.interop

planted: build  ## plant bugs and check that a test catches each; ROOM=record for those of one directory
	@$(BIN)/python -m tests.planted --jobs $(WORKERS) $(if $(ROOM),--room $(ROOM))

words: build  ## write the table of commands that help and completion read, and the man page
	@$(BIN)/python -m tests.repo.command_words

fuzz: build  ## run the parsers on damaged bytes, with many examples, and on 100,000 damaged values
	@$(BIN)/python -m pytest -m "long or not long" --timeout=3600 -o faulthandler_timeout=0 --hypothesis-profile=long tests/fuzz tests/property tests/differential
	@$(BIN)/python -m tests.fuzz --minutes 5
	@$(BIN)/python -m tests.fuzz --target avro --target json --target protobuf --cases 4200
	@$(BIN)/python -m tests.fuzz --target 'protocol message' --target 'protocol frame' --minutes 10

crash: build  ## crash states on a simulated disk, damaged side files, flipped bits; STATES=40000 SEED=1, or SEED=LANE-SEED-NUMBER for one case
	@$(BIN)/python -m tests.crash --jobs $(WORKERS) --states $(or $(STATES),40000) --seed $(or $(SEED),1)

crash-serve: build  ## kill kstore serve KILLS=200 times under four clients of librdkafka, and check what is left after each; MINUTES=10 SEED=1
	@$(BIN)/python -m tests.crash.serving --kills $(or $(KILLS),200) --minutes $(or $(MINUTES),10) --seed $(or $(SEED),1)

report-browser: build  ## look at a report's page in Chromium with axe; ends with 77 where these are missing
	@$(BIN)/python -m tests.browser

site-browser: docs  ## look at pages of the site in Chromium with axe, and search in it; ALL=1 for every page; ends with 77 where these are missing
	@$(BIN)/python -m tests.browser.site build/docs $(if $(ALL),--all)

wheels-here: build  ## build, check and use wheels for the platforms that can be had here; ends with 77 where means are missing; PARTS="manylinux aarch64"
	@$(BIN)/python -m tests.wheel $(PARTS)

powercut: build  ## cut the power of ext4 and XFS on loop images 200 times; needs root; ends with 77 where that can't be done
	@$(BIN)/python -m tests.crash ext4 ext4-writeback ext4-nodelalloc xfs --seed $(or $(SEED),1)

soak: build  ## load a store for MINUTES=60, kill its writer or let a call fail each 30 s, verify after each; SEED=1
	@nice -n 10 $(BIN)/python -m tests.crash.soak --minutes $(or $(MINUTES),60) --seed $(or $(SEED),1)

release-check: build  ## a release up to the upload: version, sdist, wheel, SBOM, an empty environment; TAG=v1.2.3 has to fit
	@$(BIN)/python -m tests.repo.release $(if $(TAG),--tag $(TAG))

release-files: build  ## check the files of a release in DIR=dist: one sdist, and wheels for each Python on each platform
	@$(BIN)/python -m tests.repo.release --files $(or $(DIR),dist)

long: test fuzz debug  ## run everything: all tests, fuzzing, the debug build under the sanitizers
	@$(BIN)/python -m pytest -m long --timeout=3600 -o faulthandler_timeout=0 || [ $$? -eq 5 ]  # 5: no tests were collected

require-java:
	@.ci/require java

$(ENVIRONMENT): requirements-dev.txt
	@.ci/require python compiler
	@echo "kstore: making .venv from requirements-dev.txt"
	@$(PYTHON) -m venv .venv
	@$(BIN)/python -m pip install --quiet "$$(grep '^pip==' requirements-dev.txt)"
	@$(BIN)/python -m pip install --quiet --requirement requirements-dev.txt
	@touch $@

$(BUILD): $(ENVIRONMENT) $(CORE)
	@echo "kstore: building the extension"
	@$(BIN)/python -m pip install --quiet --no-build-isolation --no-deps --editable .
	@touch $@

# The debug build has its own tree, so that its generated C and its library do not mix with those of the release build.
$(DEBUG_TREE)/.stamp: $(BUILD) $(shell git ls-files kstore tests 2>/dev/null)
	@rm -rf $(DEBUG_TREE) && mkdir -p $(DEBUG_TREE)
	@git ls-files -z --cached --others --exclude-standard | tar --null --files-from=- -cf - | tar -C $(DEBUG_TREE) -xf -
	@cd $(DEBUG_TREE) && KSTORE_DEBUG=1 ../../$(BIN)/python setup.py --quiet build_ext --inplace
	@touch $@

debug: $(DEBUG_TREE)/.stamp  ## run the tests without Spark on the debug build, under the address and UB sanitizers
	@cd $(DEBUG_TREE) && $(UNDER_SANITIZERS) \
		../../$(BIN)/python -m pytest -n $(WORKERS) -m "not spark and not long and not build and not traces" --timeout=1800 -o faulthandler_timeout=0 $(DEBUG_TESTS)

fuzz-asan: $(DEBUG_TREE)/.stamp  ## fuzz the debug build for MINUTES=30, at the lowest priority
	@cd $(DEBUG_TREE) && $(UNDER_SANITIZERS) nice -n 19 ../../$(BIN)/python -m tests.fuzz --no-memory-limit --minutes $(or $(MINUTES),30)

coverage: $(DEBUG_TREE)/.stamp  ## measure line coverage of Python and Cython with the debug build
	@cd $(DEBUG_TREE) && export $(UNDER_SANITIZERS) && \
		CYTHON_USE_SYS_MONITORING=0 ../../$(BIN)/python -m coverage run -m pytest -m "not spark and not long and not build and not traces" --timeout=1800 -o faulthandler_timeout=0 $(DEBUG_TESTS) && \
		../../$(BIN)/python -m coverage report

clean:  ## remove everything that was built, including the environment
	@rm -rf .venv build dist demo-out *.egg-info kstore/_core.c kstore/_core.html kstore/_core*.so
	@rm -rf .pytest_cache .mypy_cache .ruff_cache .hypothesis .benchmarks spark-warehouse metastore_db derby.log .coverage
