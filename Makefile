# Every target makes or reuses .venv and installs what it needs; `make` alone lists them.
PYTHON ?= python3
VENV   ?= .venv
PAPER  ?= F2DC
BIN    := $(VENV)/bin
SHELL  := /bin/bash
.DEFAULT_GOAL := help
.PHONY: help run test test-all quick lab edit docs slides bench claims evidence export versions execute clean lab-test have-quarto

help:            ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

# ---- installation: a stamp per kind; it is made anew when the metadata changes ----
# CONSTRAINTS=constraints.txt: the very versions of the last green run, for the developers' installation
$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("fedskew_nb needs Python 3.11 or newer, %s is %s: call make PYTHON=python3.12" % (sys.executable, sys.version.split()[0]))'
	$(PYTHON) -m venv $(VENV)

$(VENV)/run.stamp: settings.ini setup.py | $(BIN)/python
	@echo "installing fedskew_nb into $(VENV) (the first time about 5 GB on Linux, a few minutes)"
	@$(BIN)/python -m pip install -q --disable-pip-version-check -e . && touch $@

$(VENV)/lab.stamp: settings.ini setup.py | $(BIN)/python
	@echo "installing fedskew_nb[lab] into $(VENV) (the first time about 5 GB on Linux, a few minutes)"
	@$(BIN)/python -m pip install -q --disable-pip-version-check -e '.[lab]' && touch $@ $(VENV)/run.stamp

$(VENV)/dev.stamp: settings.ini setup.py | $(BIN)/python
	@echo "installing fedskew_nb[dev] into $(VENV) (the first time about 5 GB on Linux, a few minutes)"
	@$(BIN)/python -m pip install -q --disable-pip-version-check -e '.[dev]' $(if $(CONSTRAINTS),-c $(CONSTRAINTS)) && touch $@ $(VENV)/run.stamp $(VENV)/lab.stamp

# ---- use ----
run: $(VENV)/run.stamp              ## compare three papers' systems with four baselines: a table after the first seed, then runs/first/report.html
	$(BIN)/fedskew compare --suite emoji-pacs --methods "Local,FedAvg,FedAvg + AdaBN,FedBN,F2DC,FDSE,RFedDis" --seeds 200,201,202 --jobs 2 --out runs/first
	@echo "F2DC, FDSE and RFedDis are papers' systems. Asked here: who is best at home, with styles of drawings, after 480 steps."
	@echo "Not asked: new domains, backgrounds, longer training. DFL belongs to colored-mnist, FedDDL to context-vehicles: fedskew list --for unseen"

lab: $(VENV)/lab.stamp              ## JupyterLab on your own copies of the notebooks (learn/): try anything, nothing breaks
	$(BIN)/fedskew notebooks learn
	$(BIN)/jupyter lab --notebook-dir=learn learn/1_begin/01_start.ipynb

bench: $(VENV)/run.stamp            ## time of a round beside a bare PyTorch loop, about 20 minutes (ARGS="--methods all --out FILE.json")
	PYTHONPATH=. $(BIN)/python tests/bench/bench.py $(ARGS)

evidence: $(VENV)/run.stamp         ## the long runs of tests/evidence/plan.toml, in the background: start, go on, say what is left (PAUSE=1, STOP=1, PRICE=1, ONLY=A,B)
	@OMP_NUM_THREADS=1 PYTHONPATH=. $(BIN)/python tests/evidence/evidence.py $(if $(PAUSE),--pause) $(if $(STOP),--stop) $(if $(PRICE),--price) $(if $(ONLY),--only $(ONLY))

claims: $(VENV)/lab.stamp           ## the runs of a paper's claims again, an hour or more (PAPER=F2DC); can be stopped and called again
	$(BIN)/fedskew compare --grid $(PAPER) --jobs 2 --out runs/$(PAPER)

# ---- work on it ----
edit: $(VENV)/dev.stamp             ## JupyterLab on nbs/ itself
	$(BIN)/jupyter lab nbs/index.ipynb

export: $(VENV)/dev.stamp           ## notebooks -> modules and what editors read of them, metadata cleaned, README.md from index
	$(BIN)/nbdev_export && $(BIN)/nbdev_clean
	$(BIN)/python tests/tools/stubs.py
	$(BIN)/python tests/tools/words.py
	$(BIN)/python tests/tools/readme.py

versions: $(VENV)/dev.stamp         ## constraints.txt: the versions that are installed here, after a green `make test`
	$(BIN)/python tests/tools/versions.py

execute: $(VENV)/dev.stamp          ## run every notebook and store its outputs (NB="nbs/4_core/06_method.ipynb ..." for some)
	$(BIN)/python tests/tools/nbexec.py $(NB) && $(BIN)/nbdev_clean

quick: $(VENV)/dev.stamp            ## the short check: what was touched since main, and the tests that import it
	@$(BIN)/python tests/tools/quick.py

test: $(VENV)/dev.stamp             ## everything that CI checks
	VENV=$(VENV) .ci/run

test-all: $(VENV)/dev.stamp         ## the long campaign: what `test` leaves out
	OMP_NUM_THREADS=1 MPLBACKEND=Agg $(BIN)/python -m pytest -q -n 2 --dist loadfile -m campaign

lab-test: $(VENV)/dev.stamp         ## every learner's copy from top to bottom, then two in JupyterLab, in a browser without a window
	$(BIN)/python tests/lab/copies.py
	$(BIN)/python tests/lab/run.py

docs: have-quarto $(VENV)/dev.stamp ## the site, into _docs/ (needs Quarto)
	PYTHONPATH=tests/tools PATH="$(abspath $(BIN)):$$PATH" $(BIN)/python tests/tools/docs.py

slides: $(VENV)/dev.stamp           ## slides of the chapters that "Teach with it" names, into slides/
	$(BIN)/python tests/tools/slides.py

have-quarto:
	@command -v quarto >/dev/null || { echo "The site is made by Quarto, which is not on the PATH. Get it from https://quarto.org/docs/get-started/ (or: pip install quarto-cli) and call make docs again."; exit 1; }

clean:                              ## remove what the tools made (keeps .venv, runs/ and learn/)
	rm -rf _proc _docs _site slides .quarto build dist *.egg-info .pytest_cache .ruff_cache .mypy_cache .coverage.json tests/lab/node_modules
	find . -name __pycache__ -not -path './$(VENV)/*' -prune -exec rm -rf {} +
