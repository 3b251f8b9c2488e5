# `make` alone shows what there is.
.DEFAULT_GOAL := help
.PHONY: help build programs install uninstall dist source-package dist-check unit test test-release test-drivers test-gpu compare-nvidia test-dist test-arm64 test-kubernetes test-vm attacks failures load fuzz demo recordings bench bench-cluster lint site deny msrv

# The harness is the program that runs, so that it finds the others beside it.
HARNESS := --quiet --package boathook-tests --bin
# Cargo's output directory. A blank in its path would separate two words for $(abspath), and for
# the shell, so that the recipes quote it.
OUTPUT := $(shell realpath --canonicalize-missing --no-symlinks -- '$(or $(CARGO_TARGET_DIR),target)')
# The tests append to it what they skip.
SKIPPED := '$(OUTPUT)/skipped-tests'
# What was on the machine before the tests.
BEFORE := '$(OUTPUT)/before-tests'
# What it needs to run containers.
IN_CONTAINERS := probe cgroup2-view
TARGET := $(shell rustc -vV | sed -n 's/^host: //p')
# What the tests drive and are driven by.
PROGRAMS := '$(OUTPUT)/$(TARGET)/debug'
# Most of them wait for other programs.
THREADS := $(shell expr 2 \* $$(nproc))

# What programs print is what the tests expect, whoever calls.
export LC_ALL := C

PREFIX ?= /usr/local
RELEASE_PROGRAMS = '$(OUTPUT)/$(TARGET)/release/programs'
RELEASE_TREE = '$(OUTPUT)/release-tree'

help: ## Show this list
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 16

build: ## Build the programs, optimised and static; SETS="hook node" without those of the cluster
	scripts/build-programs release $(TARGET) $(SETS)

install: ## Install what was built in DESTDIR/PREFIX (/usr/local); boathook-init install then configures the engines
	scripts/release-tree $(TARGET) $(RELEASE_PROGRAMS) $(RELEASE_TREE)
	scripts/install-tree $(RELEASE_TREE) '$(DESTDIR)$(PREFIX)'

uninstall: ## Remove what make install installed
	scripts/uninstall-tree '$(DESTDIR)$(PREFIX)'

dist: ## Make the files of a release in target/dist: archives, packages, image, sums; ARCHES="amd64 arm64"
	scripts/install-test-packages rpm go-md2man gcc-aarch64-linux-gnu libc6-dev-arm64-cross
	scripts/dist target/dist

source-package: ## Make the source packages in target/source: an archive with all crates, Debian's and RPM's
	scripts/install-test-packages rpm
	scripts/source-package '$(OUTPUT)/source'

dist-check: ## Make the release of HEAD twice in different directories, and compare the bytes (long)
	scripts/install-test-packages rpm go-md2man gcc-aarch64-linux-gnu libc6-dev-arm64-cross
	scripts/dist-check

programs: ## Build the programs that the tests drive, as a release has them but not optimised
	scripts/build-programs dev $(TARGET)
	cargo build --package boathook-dist

# It is one call of cargo for the whole workspace: cargo enables the features that the selected
# packages need, and a call for some packages would compile their dependencies once more. The
# named targets are the tests of device-class, injection-plan and runtime-config.
unit: ## Run the tests that need no root, no packages and no other program
	cargo test --workspace --lib --test classes --test plans --test engines

# boathook-dist is built with the tests: by itself it would need the same dependencies with other
# features, which would be compiled once more.
test: ## Install what the tests need, build, and run every test
	scripts/install-test-packages runc busybox-static musl-tools debootstrap crun containerd docker.io docker-compose podman strace rpm go-md2man mandoc lintian rpmlint secilc prometheus skopeo docker-registry \
		qemu-system-$(if $(filter aarch64-%,$(TARGET)),arm,x86) kmod e2fsprogs debian-archive-keyring
	scripts/install-helm
	scripts/install-schemas
	cargo fetch --locked --quiet
	scripts/build-programs dev $(TARGET)
	rm -f $(SKIPPED)
	scripts/leftovers record $(BEFORE)
	umask 022 && cargo build --workspace --tests --bin boathook-dist
	umask 022; status=0; $(PROGRAMS)/roots & \
		LEFTOVERS_MARK=$$$$ BOATHOOK_TESTS_SKIPPED=$(SKIPPED) RUST_TEST_THREADS=$(THREADS) \
		scripts/limited 60 cargo test --workspace --tests --no-fail-fast || status=$$?; wait; \
		scripts/print-skips $(SKIPPED); \
		scripts/leftovers compare $(BEFORE) $$$$ || status=1; exit $$status

test-release: ## Run tests of the command line, of runc and at / on the programs of a release (as root)
	scripts/install-test-packages runc busybox-static musl-tools strace
	$(MAKE) --no-print-directory build
	BOATHOOK_TESTS_PROGRAMS=$(RELEASE_PROGRAMS) cargo test --package boathook-tests --test suite \
		--no-fail-fast -- cli:: at_root:: runc::devices runc::libraries runc::requests wrapper::real_runtime live::figures::late

test-gpu: ## Compute on the NVIDIA GPUs of this machine in containers, with the programs of a release (as root)
	scripts/install-test-packages runc busybox-static
	$(MAKE) --no-print-directory build
	BOATHOOK_TESTS_PROGRAMS=$(RELEASE_PROGRAMS) cargo test --package boathook-tests --test suite drivers::gpu -- --ignored --nocapture

compare-nvidia: ## Print a table of what NVIDIA's container toolkit in DIR and this tree give containers on this machine's GPUs (as root)
	$(if $(DIR),,$(error set DIR to the directory with nvidia-container-runtime, nvidia-container-runtime-hook and nvidia-ctk))
	scripts/install-test-packages runc busybox-static
	$(MAKE) --no-print-directory build
	tests/compare-nvidia '$(DIR)' $(RELEASE_PROGRAMS)

test-dist: ## Install the release in target/dist in clean roots and on engines (as root; long; after make dist)
	scripts/install-test-packages debhelper lintian rpmlint go-md2man debootstrap rpm qemu-user-static containerd docker.io busybox-static
	$(MAKE) --no-print-directory programs
	BOATHOOK_RELEASE='$(CURDIR)/target/dist' cargo test --package boathook-tests --test suite release:: -- --ignored --nocapture --test-threads 1

# qemu-user 7.2 has no bpf(2), openat2(2) and open_tree(2), and bounds on time do not hold
# under an emulator.
NOT_EMULATED := $(addprefix --skip=,cgroup::v2::tests::kernel container::procfs \
	tests::random_trees tests::root mount::host takes_no_time cost_little)
# Of the tests of the command line: those that look at the process or limit it, which is
# the emulator's, and a shell's before that.
NOT_EMULATED_CLI := $(addprefix --skip=cli::,confinement process)
ARM64 := aarch64-unknown-linux-gnu
ARM64_PROGRAMS := '$(OUTPUT)/arm64-programs'
# Libraries of the guest are those of the cross compiler's package.
QEMU_ARM64 := qemu-aarch64-static -L /usr/aarch64-linux-gnu

test-arm64: export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER = aarch64-linux-gnu-gcc
test-arm64: export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_MUSL_LINKER = aarch64-linux-gnu-gcc
test-arm64: ## Run the unit tests and those of the command line for arm64 under qemu (long)
	scripts/install-test-packages gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user-static
	scripts/add-target $(ARM64)
	CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER=qemu-aarch64-static \
		BOATHOOK_TESTS_CC=aarch64-linux-gnu-gcc BOATHOOK_TESTS_EMULATOR="$(QEMU_ARM64)" \
		cargo test --target $(ARM64) --lib --no-fail-fast \
		$(addprefix --package ,boathook boathook-device-class boathook-hook boathook-host-files boathook-injection-plan boathook-runtime-config) -- $(NOT_EMULATED)
	scripts/build-programs dev $(ARM64) hook node
	scripts/emulated qemu-aarch64-static $(ARM64_PROGRAMS) \
		$(foreach name,boathook boathook-hook boathook-runtime boathook-init,'$(OUTPUT)/$(ARM64)/debug/programs/$(name)')
	$(MAKE) --no-print-directory programs
	BOATHOOK_TESTS_PROGRAMS=$(ARM64_PROGRAMS) cargo test --package boathook-tests --test suite \
		--no-fail-fast cli:: -- $(NOT_EMULATED_CLI)

# Debian's name of the architecture of test-vm's machines.
ARCH = $(if $(filter aarch64-%,$(TARGET)),arm64,amd64)
VM_TARGET = $(if $(filter arm64,$(ARCH)),aarch64,x86_64)-unknown-linux-gnu
VM_PROGRAMS = '$(OUTPUT)/$(VM_TARGET)/release/programs'

test-vm: export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER = aarch64-linux-gnu-gcc
test-vm: export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_MUSL_LINKER = aarch64-linux-gnu-gcc
test-vm: ## Use devices of real drivers in virtual machines (as root; long); KERNELS="5.10 6.1 6.12 newest" CASES="camera rdma" ARCH=arm64
	scripts/install-test-packages kmod debootstrap busybox-static e2fsprogs debian-archive-keyring \
		$(if $(filter arm64,$(ARCH)),qemu-system-arm gcc-aarch64-linux-gnu libc6-dev-arm64-cross,qemu-system-x86)
	scripts/build-programs release $(VM_TARGET)
	scripts/test-program boathook-dra suite $(VM_TARGET) $(VM_PROGRAMS)/dra-suite
	BOATHOOK_VM_ARCH=$(ARCH) BOATHOOK_VM_KERNELS="$(KERNELS)" BOATHOOK_VM_CASES="$(CASES)" \
		BOATHOOK_TESTS_PROGRAMS=$(VM_PROGRAMS) \
		cargo test --package boathook-tests --test suite vm::containers -- --ignored --nocapture

attacks: ## Attack the host by every variation, and races for a thousand rounds (as root; long)
	scripts/install-test-packages runc busybox-static musl-tools podman
	$(MAKE) --no-print-directory programs
	BOATHOOK_ATTACKS=long cargo test --package boathook-tests --test suite attacks -- --nocapture

failures: ## Have every system call of the programs fail once, in every way (as root; long)
	scripts/install-test-packages runc busybox-static strace
	$(MAKE) --no-print-directory programs
	BOATHOOK_FAILURES=long cargo test --package boathook-tests --test suite failures -- --nocapture

test-drivers: ## Inject the vendors' real drivers, from Debian's packages (as root; downloads 1 GB once)
	scripts/install-test-packages runc busybox-static debootstrap
	$(MAKE) --no-print-directory programs
	cargo test --package boathook-tests --test suite drivers:: -- --ignored --nocapture --test-threads 1

test-kubernetes: ## Install on a real Kubernetes, whose programs are in KUBERNETES=DIR (as root; long)
	@test -x "$(KUBERNETES)/kubelet" || { echo "make test-kubernetes KUBERNETES=DIR: see CONTRIBUTING.md" >&2; exit 2; }
	scripts/install-test-packages busybox-static debootstrap
	scripts/install-helm
	$(MAKE) --no-print-directory programs
	BOATHOOK_KUBERNETES="$$(realpath '$(KUBERNETES)')" cargo test --package boathook-tests --test suite \
		real_kubernetes:: -- --ignored --nocapture --test-threads 1

load: ## Start 500 containers, 20 at a time, beside other work, and besiege the cluster's programs (as root; long)
	scripts/install-test-packages runc busybox-static containerd
	$(MAKE) --no-print-directory programs
	BOATHOOK_LOAD=long cargo test --package boathook-tests --test suite -- load:: live::replugged:: --include-ignored --nocapture --test-threads 1
	cargo test --release --package boathook-cluster --test suite siege -- --ignored --nocapture

fuzz: ## Fuzz every parser and editor with libFuzzer, each for TIME seconds (60 unless set; needs nightly)
	scripts/fuzz $(or $(TIME),60)

demo: ## Show the main job: two devices into a real container (as root); CLASS=FILE [HOST=host.txt] for any class
	scripts/install-test-packages runc busybox-static
	scripts/build-programs dev $(TARGET) hook node
	cargo build $(addprefix --bin ,demo $(IN_CONTAINERS))
	cargo run $(HARNESS) demo -- $(if $(CLASS),'$(CLASS)') $(if $(HOST),'$(HOST)')

recordings: ## Record the terminals of docs/pictures anew, and draw them (as root)
	scripts/install-test-packages runc busybox-static debootstrap containerd docker.io
	$(MAKE) --no-print-directory programs
	UPDATE_RECORDINGS=1 cargo test --package boathook-tests --test suite engines::recordings::
	scripts/draw-recordings

bench: ## Measure what the hook adds to starting a container, and the plugin (as root, on a quiet machine); AGAINST=PROGRAM: only this hook with another
	scripts/install-test-packages runc busybox-static musl-tools debootstrap e2fsprogs
	scripts/build-programs release $(TARGET) hook node
	cargo build --release $(addprefix --bin ,bench bench-plugin timed $(IN_CONTAINERS))
	cargo run --release $(HARNESS) bench -- $(if $(AGAINST),--against '$(AGAINST)')
ifndef AGAINST
	cargo test --release --package boathook-tests --test suite durability::cost -- --ignored --nocapture
	cargo test --release --package boathook-device-class --test classes a_thousand
	cargo run --release $(HARNESS) bench-plugin
endif

bench-cluster: ## Measure the scheduler extender at 5,000 nodes and 100,000 pods, and boathook-dra
	cargo build --release --package boathook-cluster --bins
	cargo test --release --package boathook-cluster --test suite figures -- --ignored --nocapture
	cargo test --release --package boathook-dra --test suite figures -- --ignored --nocapture

lint: ## Check the formatting, run clippy, and build the documentation
	cargo fmt --all --check
	cargo clippy --workspace --all-targets -- -D warnings
	RUSTDOCFLAGS="-D warnings -A rustdoc::private-intra-doc-links" cargo doc --workspace --exclude boathook-tests --no-deps --quiet

site: ## Build the site of the documents in target/site (mdBook, which takes some minutes the first time)
	scripts/build-site '$(OUTPUT)/site'

deny: ## Check licences, bans and sources of the dependencies (requires cargo-deny)
	cargo deny check licenses bans sources

# Cargo before 1.91 does not know the target `host-tuple` of .cargo/config.toml.
msrv: ## Check that everything compiles with the oldest supported Rust (requires rustup)
	version=$$(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml); \
		rustup toolchain install $$version --profile minimal && \
		CARGO_BUILD_TARGET=$$(rustc -vV | sed -n 's/^host: //p') \
		cargo +$$version check --workspace --all-targets --target-dir target/msrv
