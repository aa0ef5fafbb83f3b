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
# test-build KIND SANITIZERS: only what the suites of that kind name is built there.
test-build = $(call configure,build-$(1),-DHF_TESTS=ON -DHF_SANITIZE=$(2)) && \
	$(call compile,build-$(1),--target suites-$(1))
formatted = find src include cli server tests examples bench -name '*.[ch]'

.PHONY: build demo examples test nightly bench counts fuzz sim model test-builds man install uninstall deb format format-check clean help
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
	@$(call compile,build,--target examples)
	@BUILD=build examples/run

test: ## all tests: installs what they need, builds, runs (ONLY='unit-*' picks suites by name)
	@scripts/install-packages test
	@$(MAKE) --no-print-directory test-builds
	@tests/run tests/suites build-logs '$(ONLY)'

nightly: ## the long tests: every byte, every instruction, minutes of chaos
	@scripts/install-packages nightly
	@$(MAKE) --no-print-directory test-builds
	@tests/run tests/suites.nightly build-logs '$(ONLY)'

bench: ## measures beside the raw ceiling and other locks, writes docs/benchmarks.md (QUICK=1: minutes; ONLY='redlock-*')
	@scripts/install-packages bench
	@$(call configure,build-bench,-DHF_BENCH=ON)
	@$(call compile,build-bench,--target bench)
	@QUICK=$(QUICK) bench/run '$(ONLY)'

counts: ## counts what tests/counts.tsv has numbers for and shows what changed (ARGS=--write writes it there)
	@scripts/install-packages test
	@$(call test-build,plain,)
	@BUILD=build-plain tests/renew-counts $(ARGS)

fuzz: SECONDS = 60
fuzz: ## libFuzzer on every parser, SECONDS=60 each, under ASan and UBSan (ONLY=body picks one)
	@scripts/install-packages fuzz
	@$(call configure,build-plain,-DHF_TESTS=ON)
	@$(call compile,build-plain,--target holdfast-static)
	@tests/fuzz/search-all build-plain $(SECONDS) '$(ONLY)'

sim: ## the simulator of the Redis engine: SECONDS=30 of new schedules (ARGS='--trace --seed 7' shows one)
	@$(call configure,build-plain,-DHF_TESTS=ON)
	@$(call compile,build-plain,--target test-sim-redis)
	@build-plain/tests/sim/redis --kept tests/sim/kept --seconds $(SECONDS) $(ARGS)

model: ## the models in tests/models: every state within their bounds, and planted bugs that must be found
	@scripts/install-packages test
	@tests/models/check.sh $(ARGS)

test-builds:
	@$(call test-build,plain,)
	@$(call test-build,asan,'address$(comma)undefined')
	@$(call test-build,tsan,thread)

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
	@rm -rf build build-plain build-asan build-tsan build-bench build-logs

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' Makefile | while IFS="$$(printf '\t')" read -r goal text; do \
		printf 'make %-13s %s\n' "$$goal" "$$text"; done

comma := ,
