# Every target sets up what it needs in a local .venv, once; a stamp file says which extra is in.
#   make demo [DEVICE=webgpu]   train the small GPT
#   make test [ARGS="-k exp"]   the tests but the slow ones; `make test-slow` runs those
#   make test-checked           the catalog and the memory's tests in the checking build (RUSHLIGHT_CHECK=1)
#   make fuzz [MINUTES=60]      random calls, files and programs in the checking build
#   make check                  lint, format, types, architecture
#   make stubs                  the index of ops and the type stubs, from the declarations
#   make bench [ARGS=...]       the speed table against PyTorch
#   make docs                   the site, into out/site; a broken link is an error
#   make wheel                  a wheel and an sdist, into dist/

PYTHON ?= python3
JOBS ?= 2
DEVICE ?=
ARGS ?=

VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check

MINUTES ?= 60
CHECKED := core/test_reach devices/test_convolution_kernels memory/test_budget memory/test_checkpoint \
    nn/test_convolution_and_pooling ops/test_catalog ops/test_catalog_gradients ops/test_inplace ops/test_scatter \
    ops/test_sorting ops/test_subscript ops/test_views_property tensor/test_storage

.PHONY: demo test test-slow test-checked fuzz check stubs bench docs wheel clean

demo: $(VENV)/demo.stamp
	$(BIN)/python examples/train_gpt.py $(if $(DEVICE),--device $(DEVICE)) $(ARGS)

test: $(VENV)/dev.stamp
	$(BIN)/python -m pytest -n $(JOBS) -m "not slow" $(ARGS)

test-slow: $(VENV)/dev.stamp
	$(BIN)/python -m pytest -m slow $(ARGS)

test-checked: $(VENV)/dev.stamp
	RUSHLIGHT_CHECK=1 $(BIN)/python -m pytest -n $(JOBS) -m "not slow" -k "not cuda and not reference" $(CHECKED:%=tests/%.py) $(ARGS)

fuzz: $(VENV)/dev.stamp
	$(BIN)/python -m tests.fuzz all --minutes $(MINUTES) --jobs $(JOBS) $(ARGS)

check: $(VENV)/dev.stamp
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m pytest -q tests/test_architecture.py

stubs: $(VENV)/dev.stamp
	$(BIN)/python -m tools.declared
	$(BIN)/python -m tools.stubs

bench: $(VENV)/peers.stamp
	$(BIN)/python benchmarks/run.py $(ARGS)

docs: $(VENV)/docs.stamp
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "open out/site/index.html"

wheel: $(VENV)/wheel.stamp
	rm -rf dist
	$(BIN)/python -m build

clean:
	rm -rf $(VENV) dist out/site .pytest_cache .mypy_cache .ruff_cache .hypothesis *.egg-info

$(BIN)/python:
	@$(PYTHON) -c "import ensurepip" || { echo "This Python cannot make a venv; on Debian: apt-get install python3-venv"; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/%.stamp: pyproject.toml | $(BIN)/python
	$(PIP) --editable '.[$*]'
	@touch $@
