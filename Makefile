# The front door: each goal is a line or two; CMakeLists.txt knows how things are built, tests/suites what is tested.

JOBS ?= $(shell nproc)
ONLY ?= *
SECONDS ?= 30
QUICK ?= 0
ARGS ?=
prefix ?= /usr/local
DESTDIR ?=
builddir ?= build

# What goes wrong is on stderr. CMake's own make is told nothing of this one, or it would announce every folder.
configure = cmake -S . -B $(1) -DCMAKE_BUILD_TYPE=RelWithDebInfo $(2) >/dev/null
compile = env -u MAKELEVEL -u MAKEFLAGS -u MFLAGS cmake --build $(1) -j $(JOBS) $(2)
formatted = find src include cli server tests examples bench bindings \( -name '*.[ch]' -o -name '*.[ch]pp' \)

.PHONY: build demo examples test check coverage mutants nightly bench counts fuzz sim model python wheel node man install uninstall deb format format-check clean help
.DEFAULT_GOAL := build

build: ## the command, the shared and the static library, in build/
	@command -v cmake >/dev/null || { echo "cmake is missing: run scripts/install-packages build" >&2; exit 1; }
	@$(call configure,build)
	@$(call compile,build)

demo: ## two jobs take turns under a lock: installs what it needs, builds, shows it
	@scripts/install-packages demo
	@$(MAKE) --no-print-directory build
	@examples/demo.sh

examples: ## builds and runs examples/ against servers of its own: a line each with what was proved
	@scripts/install-packages test
	@$(MAKE) --no-print-directory build
	@$(call compile,build,--target examples python)
	@BUILD=build examples/run

check: ## after every change, a minute: one build, unit tests, conformance on local:, simulators, layout and words
	@scripts/install-packages test
	@tests/lib/check

test: ## all tests: installs what they need, builds, runs (ONLY='unit-*' picks suites by name)
	@scripts/install-packages test
	@tests/lib/build tests/suites '$(ONLY)'
	@tests/run tests/suites build-logs '$(ONLY)'

nightly: ## the long tests: every byte, every instruction, minutes of chaos (ARGS=--since-last goes on where it stopped)
	@scripts/install-packages nightly
	@tests/lib/build tests/suites.nightly '$(ONLY)'
	@tests/run --results docs/nightly.tsv $(ARGS) tests/suites.nightly build-logs '$(ONLY)'; status=$$?; \
		tests/lib/results-page docs/nightly.tsv docs/nightly.md && exit $$status

coverage: ## lines and branches that the tests run, per room (ONLY='unit-*' picks suites by name)
	@scripts/install-packages test
	@tests/lib/coverage '$(ONLY)'

mutants: COUNT = 200
mutants: ## COUNT=200 random small changes in core and the engines: how many does nobody notice? (ONLY=core: one room)
	@scripts/install-packages test
	@tests/lib/mutants $(COUNT) '$(ONLY)' $(ARGS)

bench: ## measures beside the raw ceiling and other locks, writes docs/benchmarks.md (QUICK=1: minutes; ONLY='redlock-*')
	@scripts/install-packages bench
	@$(call configure,build-bench,-DHF_BENCH=ON)
	@$(call compile,build-bench,--target bench)
	@QUICK=$(QUICK) bench/run '$(ONLY)'

counts: ## counts what tests/counts.tsv has numbers for and shows what changed (ARGS=--write writes it there)
	@scripts/install-packages test
	@tests/lib/build tests/suites 'fault-*costs'
	@tests/lib/build tests/suites fault-redis-counts
	@BUILD=build-plain tests/lib/renew-counts $(ARGS)

fuzz: SECONDS = 60
fuzz: ## libFuzzer on every parser, SECONDS=60 each, under ASan and UBSan (ONLY=body picks one)
	@scripts/install-packages fuzz
	@$(call configure,build-plain,-DHF_TESTS=ON)
	@$(call compile,build-plain,--target holdfast-static)
	@tests/fuzz/search-all build-plain $(SECONDS) '$(ONLY)'

sim: ## the simulator of the Redis engine: SECONDS=30 of new schedules (ARGS='--trace --seed 7' shows one)
	@$(call configure,build-plain,-DHF_TESTS=ON)
	@$(call compile,build-plain,--target test-sim-redis_sim)
	@build-plain/tests/sim/redis_sim --kept tests/sim/regression_seeds --seconds $(SECONDS) $(ARGS)

model: ## the models in tests/models: every state within their bounds, and planted bugs that must be found
	@scripts/install-packages test
	@tests/models/check_models.sh $(ARGS)

python: ## the Python package, in build/python: put that folder on PYTHONPATH, or build a wheel (docs/python.md)
	@scripts/install-packages python
	@$(call configure,build)
	@$(call compile,build,--target python)

node: ## the Node package, in build/node/holdfast: `npm install ./build/node/holdfast` (docs/node.md)
	@scripts/install-packages node
	@$(call configure,build)
	@$(call compile,build,--target node)

wheel: ## the Python package for distribution, in build/wheel: source package and wheel, built without a network
	@scripts/install-packages wheel
	@scripts/build-wheel build/wheel

man: ## the man pages, in build/man: installs what they need
	@scripts/install-packages man
	@$(call configure,$(builddir))
	@$(call compile,$(builddir),--target man)

install: ## into prefix (/usr/local) under DESTDIR; with man pages where scdoc and jq are installed
	@$(call configure,$(builddir),-DCMAKE_INSTALL_PREFIX='$(prefix)')
	@$(call compile,$(builddir))
	@DESTDIR='$(DESTDIR)' cmake --install $(builddir)

uninstall: ## removes what `make install` with the same prefix and DESTDIR laid down
	@$(call configure,$(builddir),-DCMAKE_INSTALL_PREFIX='$(prefix)')
	@$(call compile,$(builddir))
	@scripts/uninstall $(builddir) '$(DESTDIR)'

deb: ## Debian packages in build/deb: installs what they need, builds, lets lintian judge
	@scripts/install-packages deb
	@scripts/build-deb build/deb

format: ## lays out the sources with clang-format
	@$(formatted) -exec clang-format -i {} +

format-check: ## fails when `make format` would change something
	@$(formatted) -exec clang-format --dry-run -Werror {} +

clean: ## removes everything that was built
	@rm -rf build build-plain build-asan build-tsan build-bench build-logs build-coverage build-mutants

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' Makefile | while IFS="$$(printf '\t')" read -r goal text; do \
		printf 'make %-13s %s\n' "$$goal" "$$text"; done
