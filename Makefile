# Two commands from a clean clone: `make demo` and `make test`. Both set up .venv first, from pinned versions.
PYTHON ?= python3
VENV   := .venv

.PHONY: demo test test-slow test-kernels check mutants bench docs site-check torture release-check clean

demo: $(VENV)/ready
	$(VENV)/bin/everlearn demo

test: $(VENV)/ready
	$(VENV)/bin/python -m pytest --numprocesses auto --dist loadfile

test-slow: $(VENV)/ready
	$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[test,docs,ray,onnx]' onnxruntime
	-$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[peer]'
	-$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --no-deps avalanche-lib pytorchcv torchvision
	$(VENV)/bin/python -m pytest -m slow

# The kernels for a GPU, run by Triton's interpreter on the CPU: minutes, and a gigabyte for Triton.
test-kernels: $(VENV)/ready
	$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --no-deps triton
	TRITON_INTERPRET=1 $(VENV)/bin/python -m pytest tests/test_cuda_kernels.py

check: $(VENV)/ready
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/pyright
	$(VENV)/bin/codespell

mutants: $(VENV)/ready
	$(VENV)/bin/python torture/mutants.py --out torture/results/mutants.json

bench: $(VENV)/ready
	$(VENV)/bin/python benchmarks/step_cost.py
	$(VENV)/bin/python benchmarks/relation_cost.py

docs: $(VENV)/ready
	$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[docs]'
	$(VENV)/bin/python docs/generate.py
	$(VENV)/bin/python docs/build_site.py

# Builds the site, any warning being an error, and looks at every page of it: links, spelling, size, axe. Needs Chromium.
site-check: $(VENV)/ready
	$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[test,docs]'
	$(VENV)/bin/python docs/generate.py --check
	$(VENV)/bin/python -m pytest -m slow tests/test_site.py

torture: $(VENV)/ready
	for name in torture/*.py; do \
	  case $$name in torture/record.py|torture/mutants.py) ;; *) $(VENV)/bin/python $$name --out torture/results/$$(basename $$name .py).json || exit 1 ;; esac; \
	done
	$(VENV)/bin/python docs/generate.py

# Minutes, and gigabytes where torch comes with CUDA alone: make release-check RELEASE='--python 3.12 --torch newest'
release-check: $(VENV)/ready
	$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[release]'
	$(VENV)/bin/python tools/release_check.py $(RELEASE)

$(VENV)/ready: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo 'everlearn needs Python 3.11 or newer; name one with: make PYTHON=python3.11 $(MAKECMDGOALS)' >&2; exit 2; }
	$(PYTHON) -m venv $(VENV)
	$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt torch
	$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[test]'
	touch $@

clean:
	rm -rf $(VENV)
