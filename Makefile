# Needs make and Python 3.11 or newer; everything else goes into .venv. Another Python: make test PYTHON=python3.13
PYTHON ?= python3
# Another Gymnasium than that of constraints.txt, in an environment of its own: make test GYMNASIUM=1.2.2
GYMNASIUM ?=
# Of the environments in which `make release` installs the package.
PYTHONS ?= python3.11 python3.12 python3.13
EXTRAS ?= agents
VENV := .venv$(addprefix -gymnasium-,$(GYMNASIUM))
BIN := $(VENV)/bin
READY := $(VENV)/.ready
TRAINS := $(VENV)/.trains
# Ray pins Gymnasium 1.2.2, and Tianshou an old pandas: they get an environment of their own.
INTEGRATIONS := .venv-integrations
INTEGRATION_PAGES := multi-agent-rllib rllib tianshou
INTEGRATION_TESTS := $(addprefix tests/routing_gym/integrations/,test_rllib.py test_tianshou.py test_game_pettingzoo.py test_ray.py)
INTEGRATION_TESTS += tests/examples/test_tune.py tests/agents/training/test_log.py
INTEGRATION_TESTS += $(foreach page,$(INTEGRATION_PAGES),"tests/test_docs.py::test_page[docs/how-to/$(page).md]")

.PHONY: help train test test-commands test-docs test-integrations docs lint wheel release clean

help:  ## list the commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-17s %s\n", $$1, $$2}' Makefile

train: $(TRAINS)  ## train an attention model on TSP-20; another problem: ARGS="--env-id routing/CVRP-20"
	@echo "Loading torch. TSP: fast-tsp first solves 1,000 held-out instances, the reference for the gap (half a minute, once)."
	@echo "Training TSP-20 on two cores: 5 to 6 minutes with bfloat16 instructions, about 10 with AVX2 only."
	$(BIN)/python agents/am_reinforce.py $(ARGS)

test: $(READY)  ## run the tests; a part of them: ARGS="-k render"
	$(BIN)/python -m pytest -n auto --maxprocesses 4 --dist worksteal --ignore tests/site $(ARGS)

test-commands: $(READY)  ## run the commands of README and get-started in new environments, trainings cut short: minutes, downloads
	COMMANDS=full $(BIN)/python -m pytest -n 0 tests/test_docs.py -k real_environment $(ARGS)

test-docs: $(READY)  ## build the site and use its playground in a browser (Debian: apt-get install chromium)
	$(BIN)/python -m pytest -n 2 --dist loadfile tests/site $(ARGS)

docs: $(READY)  ## build the documentation site into docs/_build/html
	@echo "Running the pages' Python and writing the site: about five minutes."
	$(BIN)/python -m sphinx -W --keep-going -b html docs docs/_build/html
	@echo "open docs/_build/html/index.html"

test-integrations: $(INTEGRATIONS)/.ready  ## test what plugs into RLlib and Tianshou, in .venv-integrations
	$(INTEGRATIONS)/bin/python -m pytest $(INTEGRATION_TESTS) $(ARGS)

lint: $(READY)  ## check style, types and spelling
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/codespell

wheel: $(READY)  ## build the wheel, import it in an empty environment, solve with the weights in it
	rm -rf dist
	$(BIN)/python -m build
	@! $(BIN)/python -m zipfile --list dist/*.whl | grep -vE '^(File Name|routing_gym/|routing_agents/|routing_gym-[^/]*\.dist-info/)'
	$(BIN)/python -m venv dist/venv
	dist/venv/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt dist/*.whl
	cd dist && venv/bin/python -c "import routing_gym, sys; assert 'torch' not in sys.modules; print('routing-gym', routing_gym.__version__)"
	$(BIN)/python -m zipfile --extract dist/*.whl dist/unpacked
	cd dist/unpacked && ../../$(BIN)/python -c "$$SOLVE_TRIANGLE"  # with torch from $(VENV)
	dist/venv/bin/routing-gym info  # without torch
	! dist/venv/bin/routing-gym solve examples/cities.csv  # which names the extra
	cd dist/unpacked && for command in solve evaluate train export; do ../../$(BIN)/python -m routing_agents $$command --help >/dev/null || exit 1; done
	cd dist/unpacked && ../../$(BIN)/python -m routing_agents solve ../../examples/cities.csv

release: wheel  ## check sdist and wheel for PyPI, and install them on all Pythons; other extras: EXTRAS=solvers
	$(PYTHON) -m venv dist/twine
	dist/twine/bin/python -m pip install --quiet --disable-pip-version-check twine
	dist/twine/bin/python -m twine check --strict dist/*.tar.gz dist/*.whl
	for python in $(PYTHONS); do $(BIN)/python tests/try_release.py $$python dist --extras "$(EXTRAS)" || exit 1; done

clean:  ## delete the virtual environments and caches; keeps runs/
	rm -rf .venv .venv-gymnasium-* $(INTEGRATIONS) dist docs/_build docs/environments playground/data .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# Set up once, and again when a dependency changes.
$(READY): pyproject.toml constraints.txt
	$(call new_environment,$(VENV))
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[all]"
	$(if $(GYMNASIUM),$(BIN)/python -m pip install --quiet --disable-pip-version-check gymnasium==$(GYMNASIUM))
	@touch $@

# What training needs: a third of the rest. pip shows its progress.
$(TRAINS): pyproject.toml constraints.txt
	$(call new_environment,$(VENV))
	$(BIN)/python -m pip install --disable-pip-version-check -c constraints.txt -e ".[agents]" fast-tsp
	@touch $@

$(INTEGRATIONS)/.ready: pyproject.toml constraints-integrations.txt
	$(call new_environment,$(INTEGRATIONS))
	$(INTEGRATIONS)/bin/python -m pip install --quiet --disable-pip-version-check -c constraints-integrations.txt -e ".[agents,cluster,pettingzoo,rllib,tianshou,wandb]" hypothesis pytest pytest-xdist
	@touch $@

define SOLVE_TRIANGLE
import numpy, pathlib, routing_agents
assert pathlib.Path(routing_agents.__file__).is_relative_to(pathlib.Path.cwd()), routing_agents.__file__
solution = routing_agents.load('TSP-20').solve(numpy.array([[0, 0], [3, 0], [3, 4]]))
assert abs(solution.cost - 12) < 1e-3, solution.cost
print('routing_agents solves a triangle:', solution.tour, solution.cost)
endef
export SOLVE_TRIANGLE

define new_environment
	@command -v $(PYTHON) >/dev/null || { echo "$(PYTHON) not found: install Python 3.11 or newer, or name one: make PYTHON=/path/to/python3" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "routing-gym needs Python 3.11 or newer, but $(PYTHON) is $$($(PYTHON) -V 2>&1); name another: make PYTHON=/path/to/python3" >&2; exit 1; }
	$(PYTHON) -m venv $(1) || { echo "$(PYTHON) cannot make virtual environments; on Debian and Ubuntu: apt install python3-venv" >&2; exit 1; }
endef
