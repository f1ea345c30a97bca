# Every target sets itself up: `make test` on a fresh clone needs Python 3.11 or later and a package index, no more.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed

# Tests neither need nor may use the network. One thread a worker: two workers on two cores beat two threads each.
TEST_ENV := HF_HUB_OFFLINE=1 OMP_NUM_THREADS=1 TOKENIZERS_PARALLELISM=false

.DEFAULT_GOAL := help
.PHONY: help install demo translate serve browser ray test test-slow lint types format docs clean

help:  ## Show this list
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-10s %s\n", $$1, $$2}'

install: $(INSTALLED)  ## Make the virtual environment with the tested versions

# torch comes in the same command as everything else: constraints.txt holds it at the tested version, and a CPU build
# of that version is taken where one is offered.
$(INSTALLED): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; v = sys.version_info; sys.exit(0 if v >= (3, 11) else f"Python {v[0]}.{v[1]} is too old: make PYTHON=python3.11 (or later)")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt torch --editable '.[dev]'
	@touch $@

demo: $(INSTALLED)  ## Train a small translator and translate your sentences with it (three to five minutes)
	$(BIN)/vanilla demo

TRANSLATE := HF_HUB_OFFLINE=1 $(BIN)/vanilla translate

translate: $(INSTALLED)  ## Translate English into German, French, Spanish, Chinese and back: standard input, or an example
	@line=; if [ -t 0 ] || { ! IFS= read -r line && [ -z "$$line" ]; }; then \
		line='I would like a cup of coffee, please.'; echo "$$line"; set -- echo "$$line"; \
	else set -- sh -c 'printf "%s\n" "$$1"; cat' sh "$$line"; fi; \
	translations=$$("$$@" | $(TRANSLATE)) && echo "$$translations" && \
	echo "$$translations" | cut -f 2 | $(TRANSLATE) --model everyday --target_lang en | sed 's/^/en\t/'

serve: $(INSTALLED)  ## Serve the bundled models: a page to try it, and an API (http://127.0.0.1:8000)
	HF_HUB_OFFLINE=1 $(BIN)/vanilla serve $(ARGS)

test: $(INSTALLED) lint  ## Run the tests (set-up included)
	$(TEST_ENV) $(BIN)/python -m pytest -n auto --dist worksteal $(ARGS)

# The page is tested in a real browser, its accessibility with axe-core, the API with Schemathesis, and the tour in a
# real kernel. Only these tests need them.
browser: $(INSTALLED)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[browser,notebook]'
	@{ command -v chromium && command -v chromedriver; } > /dev/null || { \
		sudo=; [ "$$(id -u)" = 0 ] || sudo=sudo; \
		$$sudo apt-get update && $$sudo apt-get install --yes --no-install-recommends chromium chromium-driver; }
	@! command -v npm > /dev/null || npm install --silent --no-save --prefix build/npm axe-core@4

# A cluster is tested on this computer, too.
ray: $(INSTALLED)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[ray]'

test-slow: $(INSTALLED) browser ray  ## Run the tests that take more than a minute each
	$(TEST_ENV) $(BIN)/python -m pytest -m slow $(ARGS)

lint: $(INSTALLED) types  ## Check the style and the types
	$(BIN)/ruff check --quiet .
	$(BIN)/ruff format --quiet --diff .

# training/ and scripts/ are packages inside vanilla_transformer once installed. mypy reads files where they are, so it
# gets a folder of links with that layout.
PACKAGE_LINKS := .mypy_cache/packages/vanilla_transformer

types: $(INSTALLED)  ## Check the types
	@rm -rf $(PACKAGE_LINKS) && mkdir -p $(PACKAGE_LINKS)
	@cd $(PACKAGE_LINKS) && ln -s ../../../vanilla_transformer/* ../../../training ../../../scripts .
	$(BIN)/python -m mypy

format: $(INSTALLED)  ## Apply the style
	$(BIN)/ruff check --quiet --fix .
	$(BIN)/ruff format --quiet .

# Broken links and references are errors.
docs: $(INSTALLED)  ## Build the site in build/docs from docs/ and the docstrings
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[docs]'
	HF_HUB_OFFLINE=1 $(BIN)/python -m sphinx -W --keep-going --quiet -b html -d build/doctrees docs build/docs

clean:  ## Remove the virtual environment and everything built
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .ruff_cache .mypy_cache .hypothesis
