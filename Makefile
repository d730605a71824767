# Every target sets up what it needs: a virtual environment in .venv with the versions of constraints.txt.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/ready

.PHONY: help demo test test-gpu generate lint types format docs bench bench-data bench-gpu bench-stacked clean
help:  ## list the targets
	@grep -E '^[a-z-]+:.*##' Makefile | sed -E 's/:.*## /\t/' | expand -t 12

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "labelhedge needs Python 3.11 or newer; set PYTHON=")'
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable ".[all,dev,docs]"
	touch $@

demo: $(READY)  ## the paper's leaderboard on Vowel: 15 losses, 7 noises, 5 folds, tuned; then a page to look at
	$(BIN)/labelhedge demo --out build/demo

test: lint types  ## lint, types, tests and doctests
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses auto --dist worksteal

test-gpu: $(READY)  ## the tests that need a CUDA device
	$(BIN)/python -m pytest -m gpu

generate: $(READY)  ## write what follows from the code: functions, tables, lists of files and of public names
	$(BIN)/python docs/loss_exports.py
	$(BIN)/python docs/generate.py
	$(BIN)/python docs/public_names.py

lint: $(READY)  ## ruff
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(READY)  ## mypy
	$(BIN)/mypy

format: $(READY)  ## let ruff rewrite the files
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(READY)  ## the documentation as a site in build/site
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo 'build/site/index.html; with search: $(BIN)/python -m http.server --directory build/site'

bench: $(READY)  ## time every loss against torch's cross entropy on this CPU
	$(BIN)/python benchmarks/losses_cpu.py

bench-gpu: $(READY)  ## time the fused losses against torch's and Liger's cross entropy on a CUDA device
	$(BIN)/python benchmarks/losses_gpu.py

bench-stacked: $(READY)  ## time a stack of networks against a plain PyTorch loop
	$(BIN)/python benchmarks/stacked.py

bench-data: $(READY)  ## time the readers of data against scikit-learn and Pillow
	PYTHONPATH=. $(BIN)/python benchmarks/data_readers.py

clean:  ## remove the virtual environment and caches
	rm -rf .venv .hypothesis .mypy_cache .pytest_cache .ruff_cache
