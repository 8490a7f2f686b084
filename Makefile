# SPDX-License-Identifier: Apache-2.0
# The doors for people and for continuous integration. `make help` lists them.
# Each target installs what it needs, and is quiet when that is there.

VERSION := $(shell sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
TARGET  := $(or $(CARGO_TARGET_DIR),target)
PREFIX  ?= /usr/local
DESTDIR ?=

# Debian packages; with =COMMAND any program of that name will do.
APT_BUILD := gcc=cc libc6-dev git=git
APT_TEST  := $(APT_BUILD) g++=c++ pkg-config=pkg-config cmake=cmake mandoc=mandoc rsync=rsync sqlite3=sqlite3 fio=fio attr=setfattr acl=setfacl mpich=mpirun.mpich libmpich-dev=mpicc.mpich netcdf-bin=ncgen python3-h5py
APT_LONG  := openfoam=icoFoam openfoam-examples libopenmpi-dev=mpicc.openmpi dbench=dbench bonnie++=bonnie++ python3-torch=torchrun python3-fsspec
APT_DEMO  := $(APT_BUILD) pkg-config=pkg-config

CARGO_DENY := $(shell command -v cargo-deny 2>/dev/null)
HEADER     := bindings/c/include/ioverbs.h
# The Python package is a Cargo workspace of its own; checking its style needs no Python.
PYTHON     := bindings/python
PYO3       := PYO3_NO_PYTHON=1 PYO3_BUILD_EXTENSION_MODULE=1 CARGO_TARGET_DIR='$(abspath $(TARGET))'

# For the scripts that targets run.
export TARGET VERSION

.DEFAULT_GOAL := help
.PHONY: help demo build test test-long test-long-packages bench install lint fmt clean
.PHONY: need-rust check test-rust test-c test-python test-examples
.NOTPARALLEL:

help:
	@echo 'make demo                     real data stored, searched and read back, in a minute'
	@echo 'make test                     all checks and tests'
	@echo 'make test-long                the same, and the tests that take long'
	@echo 'make bench                    the micro benchmarks, beside the ceilings of this machine'
	@echo 'make build                    libraries, programs and man pages, in $(TARGET)/'
	@echo 'make install PREFIX=DIR       installs them; DESTDIR is honoured; default $(PREFIX)'
	@echo 'make lint, fmt, clean         check the style, set it right, remove what was made'

need-rust:
	@scripts/need-rust.sh

demo: build
	@scripts/need-apt.sh $(APT_DEMO)
	@scripts/demo.sh

build: need-rust
	@scripts/need-apt.sh $(APT_BUILD)
	cargo build --release --workspace
	@if [ -e $(TARGET)/release/libioverbs_capi.a ]; then \
	    scripts/link-shared.sh $(TARGET)/release/libioverbs_capi.a $(TARGET)/release $(VERSION); fi
	@$(TARGET)/release/iov-manpages $(HEADER) $(TARGET)/man "$$(git log -1 --format=%cs -- $(HEADER) 2>/dev/null)"
	@rm -rf $(TARGET)/man/man1
	@$(TARGET)/release/iov man --dir $(TARGET)/man/man1
	@$(TARGET)/release/iov completions --dir $(TARGET)/completions

install:
	@test -e $(TARGET)/release/libioverbs.so.$(VERSION) || { echo 'run make build first' >&2; exit 1; }
	@PREFIX='$(PREFIX)' DESTDIR='$(DESTDIR)' scripts/install.sh

test: check test-rust test-c test-python test-examples

# Style, lints, and the rules about dependencies where cargo-deny is there.
check lint: need-rust
	@scripts/need-apt.sh $(APT_TEST)
	cargo fmt --check
	cargo clippy --workspace --all-targets -- -D warnings
	cargo fmt --check --manifest-path $(PYTHON)/Cargo.toml
	$(PYO3) cargo clippy --manifest-path $(PYTHON)/Cargo.toml --all-targets -- -D warnings
ifneq ($(CARGO_DENY),)
	cargo deny check bans licenses sources
endif

test-rust: need-rust
	cargo test --workspace
	@# The litmus tests once more, of stores in shared memory.
	IOV_LITMUS_MEDIUM=shmem cargo test -p iov-litmus --test litmus
	@# And of clients that reach stores over TCP.
	IOV_LITMUS_MEDIUM=tcp cargo test -p iov-litmus --test litmus

# The tests in C and the examples belong to parts that may be absent from a tree.
test-c:
	@if [ -e bindings/c/tests/run.sh ]; then bindings/c/tests/run.sh; fi

test-python: export CARGO_TARGET_DIR = $(abspath $(TARGET))
test-python: export IOVERBS_IOVD = $(abspath $(TARGET))/debug/iovd
test-python: need-rust
	@scripts/need-apt.sh $(APT_BUILD)
	@scripts/need-venv.sh data
	cargo build --package iovd
	VIRTUAL_ENV='$(CURDIR)/.venv' .venv/bin/maturin develop --quiet --manifest-path $(PYTHON)/Cargo.toml
	.venv/bin/python -m pytest -q $(PYTHON)/tests

test-examples:
	@if [ -e examples/run.sh ]; then examples/run.sh; fi

# Before the tests: some look for what is there.
test-long-packages:
	@scripts/need-apt.sh $(APT_LONG)

# Tests marked #[ignore] are the long ones; the number of random cases grows with them.
test-long: export IOV_TEST_LONG = 1
test-long: test-long-packages test
	PROPTEST_CASES=4096 cargo test --workspace --profile optimized -- --include-ignored
	@# The litmus tests of collections that lie on three targets.
	IOV_LITMUS_MEDIUM=striped cargo test -p iov-litmus --test litmus
	@# And of bytes at another daemon than the catalog's.
	IOV_LITMUS_MEDIUM=member cargo test -p iov-litmus --test litmus
	bindings/c/tests/asan.sh

bench: build
	$(TARGET)/release/iov bench micro

fmt: need-rust
	cargo fmt
	cargo fmt --manifest-path $(PYTHON)/Cargo.toml

clean:
	cargo clean
	rm -rf .venv dist build $(PYTHON)/target $(PYTHON)/python/ioverbs/_ioverbs*.so
