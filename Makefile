# carrack: build, test, try. `make help` lists the targets.
#
# Everything uses the release profile, so that tests, demo and benchmarks share one build.

SHELL       := /bin/bash
PREFIX      ?= /usr/local
DESTDIR     ?=
CARGO       ?= cargo
# CI builds what Cargo.lock says, exactly.
CARGO_FLAGS ?= $(if $(CI),--locked)
TARGET_DIR  ?= $(or $(CARGO_TARGET_DIR),target)
# Arguments for bench/compare: make bench BENCH='--rounds 3 --workloads linux'; so for bench-micro and limits
BENCH       ?=
# Arguments for testbed/environments: make environments ENVIRONMENTS='--only bindfs-*'
ENVIRONMENTS ?=
# Seeds of the simulation: make simulate SEEDS=0..1000000
SEEDS       ?= 0..10000
# Arguments for the test programs: make test TESTS='sink -- --nocapture'
TESTS       ?=

# rustup's cargo, where the shell doesn't know it.
export PATH := $(PATH):$(or $(CARGO_HOME),$(HOME)/.cargo)/bin:/usr/local/sbin:/usr/sbin:/sbin
export CARGO_FLAGS

# On in carrack; its tests are another package's.
RELEASE := --workspace --release --features carrack-transport/fabric $(CARGO_FLAGS)
# The program alone, without the testbed's file systems. CI builds all for its tests, and nothing twice.
PROGRAM := $(if $(CI),$(RELEASE),--package carrack --release --features carrack-transport/fabric $(CARGO_FLAGS))
# A crate outside of the workspace; bench/micro/run and bench/limits build it in the same place.
MICRO   := --manifest-path bench/micro/Cargo.toml --target-dir $(or $(CARGO_TARGET_DIR),target/micro) $(CARGO_FLAGS)

# Packages are made of a program that is built for them, the same wherever that is done (scripts/release-build). CI has no
# time for another build, and packages the one that the tests use.
PACKAGED    := $(if $(CI),$(TARGET_DIR),$(TARGET_DIR)/package)
MAN_PAGES   := $(wildcard docs/man/*.1)
COMPLETIONS := $(PACKAGED)/release/completions
GUEST_LOG ?= bench/numa/guest-test.log

# Prints the path of carrack-machine's test program.
MACHINE_TESTS = $(CARGO) test --package carrack-machine --lib --release $(CARGO_FLAGS) --no-run --message-format=json | \
    sed -n 's/.*"executable":"\([^"]*\)".*/\1/p'

.DEFAULT_GOAL := build
.PHONY: help build build-testbed test simulate environments guest-test lint format check-scripts fuzz-smoke demo bench bench-micro limits numa-count install uninstall clean \
    release deb deb-test tarball tarball-test static wheel rpm image dist demo-first-minute bare-host-test cross-check sbom reproducible book

help: ## List the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/\1|\2/p' $(MAKEFILE_LIST) | while IFS='|' read -r target words; do \
	    printf '%-14s %s\n' "$$target" "$$words"; done

build: ## Build target/release/carrack
	@scripts/setup build
	$(CARGO) build $(PROGRAM)

build-testbed: ## Build the program with the testbed's file systems
	@scripts/setup build
	$(CARGO) build $(RELEASE)

test: ## Run all tests
	@scripts/setup build test
	$(CARGO) test $(RELEASE) $(TESTS)

simulate: ## Run whole transfers under a simulated scheduler, clock, storage and network, with faults; SEEDS=FROM..TO
	@scripts/setup build
	SEEDS=$(SEEDS) testbed/simulation/run --check

environments: build-testbed ## Copy in every environment that can be made here (root); ENVIRONMENTS='--all --page' for all of them and docs/design/environments.md
	@scripts/setup environments
	testbed/environments --carrack $(TARGET_DIR)/release/carrack $(ENVIRONMENTS)

guest-test: build ## Test NUMA placement and RMA over software RoCE in an emulated machine; placement's log: GUEST_LOG (bench/numa/guest-test.log)
	@scripts/setup guest
	testbed/roce-test --carrack $(TARGET_DIR)/release/carrack
	set -o pipefail; bench/numa/guest-test --carrack $(TARGET_DIR)/release/carrack --tests "$$($(MACHINE_TESTS))" --details \
	    2>&1 | tee $(GUEST_LOG)

lint: check-scripts ## Formatting, clippy, documentation, licences, scripts
	@scripts/setup build lint
	$(CARGO) fmt --all --check
	$(CARGO) clippy $(RELEASE) --all-targets -- -D warnings
	RUSTDOCFLAGS='-D warnings' $(CARGO) doc $(RELEASE) --no-deps
	$(CARGO) fmt --manifest-path bench/micro/Cargo.toml --check
	$(CARGO) clippy $(MICRO) --all-targets -- -D warnings
	$(CARGO) fmt --manifest-path testbed/simulation/Cargo.toml --check
	@scripts/check-licences

format: ## Format all Rust code
	$(CARGO) fmt --all
	$(CARGO) fmt --manifest-path bench/micro/Cargo.toml
	$(CARGO) fmt --manifest-path testbed/simulation/Cargo.toml

check-scripts: ## Check the shell and Python scripts, the language, the pages' links, and the names in ARCHITECTURE.md, docs/design and READMEs
	@scripts/setup lint
	@scripts/check-scripts
	@scripts/check-names
	@scripts/check-pages
	@scripts/check-language

fuzz-smoke: ## Fuzz every decoder for some seconds
	@scripts/fuzz-smoke

demo: ## Copy a Linux tree and large files through ssh, there and back, and verify
	@scripts/setup build demo
	@scripts/demo

bench: build ## Compare with other movers; rewrites bench/RESULTS.md
	@scripts/setup bench
	bench/compare $(BENCH)

bench-micro: ## Benchmark the parts: scan, cut, queue, codec, hash, seal, journal
	bench/micro/run $(BENCH)

limits: ## Measure what this machine can do at most, to compare with
	bench/limits $(BENCH)

numa-count: build ## Count the bytes each way of placing moves between NUMA nodes; rewrites bench/numa/NUMA.md
	@scripts/setup guest
	bench/numa/count --carrack $(TARGET_DIR)/release/carrack $(BENCH)

release: ## Build target/package/release/carrack, the same bytes wherever this commit is built
	@scripts/setup build
	scripts/release-build $(TARGET_DIR)/package

sbom: ## List what the program is made of, and its licences: target/sbom/
	@scripts/setup build sbom
	scripts/sbom $(TARGET_DIR)/sbom

# Completions and the bill lie where cargo-deb looks for what was built.
deb: $(if $(CI),build,release) ## Make the Debian package, target/debian/carrack_*.deb
	@scripts/setup deb sbom
	mkdir -p $(COMPLETIONS)
	$(PACKAGED)/release/carrack completions bash >$(COMPLETIONS)/carrack
	$(PACKAGED)/release/carrack completions zsh >$(COMPLETIONS)/_carrack
	$(PACKAGED)/release/carrack completions fish >$(COMPLETIONS)/carrack.fish
	scripts/sbom --check $(PACKAGED)/release/carrack $(PACKAGED)/release/sbom
	rm -f $(TARGET_DIR)/debian/carrack_*.deb
	SOURCE_DATE_EPOCH=$$(scripts/release-build --date) CARGO_TARGET_DIR=$(abspath $(PACKAGED)) $(CARGO) deb --package carrack \
	    --no-build --strip --output $(abspath $(TARGET_DIR))/debian/ $(if $(CI),--fast) $(CARGO_FLAGS)

reproducible: ## Build this commit's package twice, in different places, and compare: 13 minutes, not in CI
	@scripts/setup build deb sbom
	scripts/reproducible

deb-test: deb ## Install the package on a bare Debian 12, start its daemon, purge it
	@scripts/setup deb-test
	scripts/deb-test --root $(TARGET_DIR)/debian-12.tar $(TARGET_DIR)/debian/carrack_*.deb

tarball: ## Make an archive for older Linuxes, target/tarball/carrack-*.tar.xz: a whole build
	@scripts/tarball

tarball-test: ## Run what `make tarball` made beside nothing but an old C library
	@scripts/setup tarball
	scripts/tarball-test $(TARGET_DIR)/tarball/carrack-*.tar.xz

demo-first-minute: ## Install the wheel and copy a Linux tree to a host with nothing but sshd, verified (root)
	@scripts/demo-first-minute

bare-host-test: static ## Try the static program on hosts with nothing but sshd: Debian 12, BusyBox with dropbear (root)
	@scripts/setup bare-host
	testbed/bare-host-test

wheel: ## Make a wheel with the static program and the Python client, for pip and uv: target/wheel/
	@scripts/wheel

rpm: ## Make an RPM package with the static program, and try it: target/rpm/
	@scripts/rpm
	scripts/rpm --test $(TARGET_DIR)/rpm/carrack-*.rpm

image: ## Make a container image with the static program, and try it: target/image/
	@scripts/image
	scripts/image --test $(TARGET_DIR)/image/carrack-*-$$(uname -m).tar

dist: ## Make all packages of a release with checksums, for both architectures: target/dist/; KEY=FILE signs them
	@scripts/dist $(if $(KEY),--key $(KEY)) $(ARCHES)

static: ## Build static programs, which are sent to far hosts without carrack: target/static/bootstrap; ARCHES='x86_64 aarch64'
	@scripts/static $(ARCHES)

cross-check: ## Build for 64-bit ARM, and copy with it under QEMU: a whole build, not in CI
	@scripts/setup cross
	scripts/cross-check

book: ## Make the book of docs/, target/book/index.html
	@scripts/setup book
	mdbook build docs --dest-dir $(abspath $(TARGET_DIR))/book

install: build ## Install to PREFIX (default /usr/local), below DESTDIR
	install -D -m 755 --strip $(TARGET_DIR)/release/carrack $(DESTDIR)$(PREFIX)/bin/carrack
	for program in $(wildcard $(TARGET_DIR)/static/bootstrap/*); do \
	    install -D -m 644 -t $(DESTDIR)$(PREFIX)/lib/carrack/bootstrap "$$program"; done
	install -D -m 644 -t $(DESTDIR)$(PREFIX)/share/man/man1 $(MAN_PAGES)

uninstall: ## Remove what install put there
	rm -rf $(DESTDIR)$(PREFIX)/lib/carrack/bootstrap
	rm -f $(DESTDIR)$(PREFIX)/bin/carrack $(MAN_PAGES:docs/man/%=$(DESTDIR)$(PREFIX)/share/man/man1/%)

clean: ## Remove everything built
	$(CARGO) clean
	rm -rf fuzz/target fuzz/corpus fuzz/artifacts
