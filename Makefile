# Shorthands for developers. Each works in a clean checkout and can be run again.

PYTHON ?= python3.11
BIN := .venv/bin
EXAMPLE := examples/dreamer
LOOP := build/closed-loop

.PHONY: demo test lint closed-loop bench probe zoo conformance cluster fuzz

# The two commands of README.md; tests/test_docs.py holds them equal.

demo:
	python3.11 -m venv .venv && .venv/bin/pip install -q -c constraints.txt -e . && \
	.venv/bin/opcompat scan examples/dreamer && \
	.venv/bin/opcompat convert examples/dreamer --to onnx,tflite --out dist --force && \
	.venv/bin/opcompat verify dist examples/dreamer --steps 100

test:
	python3.11 -m venv .venv && .venv/bin/pip install -q -c constraints.txt -e ".[test]" && \
	.venv/bin/python -m pytest -n 2

# The rest needs an environment with the test tools; it is made once.

.venv/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install -q -c constraints.txt -e ".[test]"
	touch $@

lint: .venv/.installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# The full-size example, 20 seeds x 1,000 steps, both runtimes: takes a while. Reports stay in $(LOOP).
closed-loop: .venv/.installed
	mkdir -p $(LOOP)
	for action in discrete continuous; do \
	    $(BIN)/opcompat convert $(EXAMPLE) --arg action=$$action --to onnx,tflite --out $(LOOP)/$$action --force -q && \
	    $(BIN)/opcompat verify $(LOOP)/$$action $(EXAMPLE) --arg action=$$action --steps 1000 --seeds 20 \
	        --output json=$(LOOP)/$$action.json --output html=$(LOOP)/$$action.html || exit 1; \
	done

bench: .venv/.installed
	$(BIN)/python benchmarks/startup.py
	$(BIN)/python benchmarks/latency.py
	$(BIN)/python benchmarks/chain.py

# Asks the installed LiteRT what it runs and rewrites opcompat/targets/data/litert.json.
probe: .venv/.installed
	$(BIN)/opcompat probe litert --out opcompat/targets/data/litert.json --force

# Every policy of the zoo on both runtimes; writes docs/zoo.md. dreamerv3 pins a gym that no longer builds.
zoo: .venv/.installed
	$(BIN)/pip install -q -c constraints.txt -e ".[test,zoo]"
	$(BIN)/pip install -q --no-deps -c constraints.txt dreamerv3
	$(BIN)/python -m tests.zoo.run

# JAX's own primitive suite on both runtimes; writes docs/coverage.md. `CASES=--sample` takes ten of each group.
conformance: .venv/.installed
	$(BIN)/python -m tests.conformance.run $(CASES)

# 200 models over a Dask cluster of two workers, one of which is killed: some minutes on two processors.
cluster: .venv/.installed
	$(BIN)/python -m pytest -n 0 -m slow tests/test_check_cluster.py

# Mutated files of every format, COUNT of each; those that fail stay in build/fuzz.
COUNT ?= 10000
fuzz: .venv/.installed
	$(BIN)/python -m tests.fuzz.run --count $(COUNT)
