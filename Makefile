# The few commands a newcomer needs. Everything behind them is in xtask/ and scripts/.

ROUNDS ?= 50
SECONDS ?= 60
MINUTES ?= 60

.PHONY: help setup build run test hunt check crash guest fuzz damage bench clean

help: ## what there is
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 16

setup: ## install what a fresh Debian with Rust lacks (says what and why; nothing to do the second time)
	@scripts/setup

build: ## the release binary, target/release/bimetal
	cargo build --release --locked --package bimetal

run: setup build ## fuse two file-backed drives under ./run, fill them with a real tree, restart, verify
	@cargo x demo

test: setup ## every test
	cargo test --workspace --locked

hunt: build ## attack simulated volumes for MINUTES (default 60) on all cores, until something is found
	target/release/bimetal hunt --minutes $(MINUTES) --until-failure

check: setup ## the whole gate: format, lints, docs, tidiness, tests
	@cargo x check

crash: setup build ## kill -9 under fio, SQLite and PostgreSQL load, ROUNDS times (default 50)
	BIMETAL_CRASH_ROUNDS=$(ROUNDS) cargo test --release --locked --package bimetal --test crash -- --nocapture --test-threads=1

guest: build ## boot guests on and from vhost-user disks, and on ublk disks, kill -9 the servers under them (KVM or emulation)
	@scripts/setup guest
	scripts/guest

fuzz: ## each decoder of foreign bytes under a fuzzer, SECONDS long (default 60; needs a nightly compiler)
	@cargo x fuzz --seconds $(SECONDS)

damage: ## every byte of two volumes' metadata changed, one at a time, on all cores
	cargo run --release --locked --package bimetal-hostile --example damage

bench: build ## side by side with nbdkit and QEMU's servers; prints tables of ratios
	@scripts/setup bench
	@cargo x bench

clean: ## everything that was built, and the demonstration's volume under ./run
	@if [ -d run ]; then cargo x demo --forget; fi
	cargo clean
