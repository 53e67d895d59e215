# What a reader types. Every rule first sets up what it needs: scripts/env.sh, which a second run
# ends at once. PYTHON=... names the Python to build with; pip's own variables are passed through.
.PHONY: help env lab test outputs
.DEFAULT_GOAL := help
unexport PYTHONPATH PYTHONHOME # packages from elsewhere would hide the pinned ones
python = PATH="$(CURDIR)/.venv/bin:$$PATH" .venv/bin/python # PATH: for ninja

help:
	@echo "make lab      open the course in JupyterLab   (LAB_ARGS=\"--no-browser --port=8890\")"
	@echo "make test     run every test and notebook     (TEST_ARGS=\"-k doctor\")"
	@echo "make outputs  run the notebooks and store their outputs"
	@echo "make env      set up .venv only               (PYTHON=python3.12)"
	@echo "rm -rf .venv  undo make env"

env:
	@bash scripts/env.sh

lab: env
	@bash scripts/lab.sh $(LAB_ARGS)

test: env
	@$(python) scripts/test.py $(TEST_ARGS)

outputs: env
	@$(python) scripts/notebooks.py outputs
