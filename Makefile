# Every target works in a fresh clone with only Python 3.11+ (venv) and git.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: help test check test-cpus matrix browser demo bench docs lint format stubs clean

help:
	@echo "make demo    install into .venv and run the demonstration"
	@echo "make test    install into .venv, check style and types, run all tests"
	@echo "make check   style and types, and the tests of the families you touched (BASE=HEAD)"
	@echo "make test-cpus   run the numerical tests as other processors would"
	@echo "make matrix  a few tests with the oldest and newest versions, each Python that is there"
	@echo "make browser open all pages in Chromium, which is installed where it is missing (as root)"
	@echo "make bench   compare with C++, NumPy and other libraries, as ratios in one run"
	@echo "make docs    build the site, build/site/index.html, with executed examples; offline"
	@echo "make lint    style and types only;  make format  rewrite to the style"
	@echo "make stubs   type stubs of the public names, after a change of the registry"

$(VENV)/.installed: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".[test,dev,plot,docs,browser]"
	@touch $@

test: $(VENV)/.installed lint
	# threads of BLAS only fight the workers; a file in one worker makes its fixtures once
	OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist loadfile

check: $(VENV)/.installed lint
	OPENBLAS_NUM_THREADS=1 $(BIN)/python .ci/affected.py --base $(or $(BASE),HEAD)

test-cpus: $(VENV)/.installed
	$(BIN)/python .ci/cpus.py -n 2 --dist loadfile

matrix: $(VENV)/.installed
	$(BIN)/python .ci/matrix.py

browser: $(VENV)/.installed
	$(PYTHON) .ci/chromium.py
	OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest tests/report/test_browser.py

demo: $(VENV)/.installed
	$(BIN)/fieldfit demo --out demo

bench: $(VENV)/.installed
	$(BIN)/python -m benchmarks.run

docs: $(VENV)/.installed
	# examples run one after the other, and a warning is an error
	OPENBLAS_NUM_THREADS=1 $(BIN)/python -m sphinx -b html --nitpicky --fail-on-warning --keep-going --quiet -d build/doctrees docs build/site
	@echo "open build/site/index.html"

lint: $(VENV)/.installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(VENV)/.installed
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

stubs: $(VENV)/.installed
	$(BIN)/python -c "from fieldfit._registry import write_stubs; write_stubs()"

clean:
	rm -rf $(VENV) build dist demo bench-results test-results docs/api docs/gallery docs/papers/reports
