# `make demo` and `make test` work on a fresh machine without further setup.

CARGO ?= cargo
export CARGO_TERM_COLOR ?= auto
# Directory where hack/setup.sh installs Go if the machine has no recent version.
export PATH := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/octavo/go/bin:$(PATH)
# Tests mostly wait for other processes, so at least eight run in parallel.
export RUST_TEST_THREADS ?= $(shell cores=$$(nproc); echo $$((cores < 8 ? 8 : cores)))

# `make demo DEMO_SECONDS=20`, or from the environment.
export DEMO_SECONDS
# `make try TRY_SECONDS=60`
export TRY_SECONDS

.DEFAULT_GOAL := help
.PHONY: help demo try try-down quick test setup fmt lint unit rustdoc docs man golden screenshots recording bench bench-fleet fuzz fleet-simulation crash-sweep focus-validate e2e cluster-up cluster-down image release house clean

help: ## show this list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: ## build, and run a simulated cluster; with DEMO_SECONDS=20, exit after 20 s and verify the fleet
	$(CARGO) build --workspace --bins --lib --locked
	@exec "$${CARGO_TARGET_DIR:-target}/debug/octavo" demo

try: setup ## run a Kubernetes cluster with simulated GPUs and Octavo until Ctrl-C; with TRY_SECONDS=60, stop after 60 s
	@CARGO="$(CARGO)" exec hack/try.sh

try-down: ## stop the cluster of make try, and remove the remains of an interrupted run
	@hack/try.sh --down

# Setup waits for downloads on a new machine, so clippy runs at the same time.
test: fmt ## run all checks of a change: format, clippy, tests, documentation
	@$(MAKE) --no-print-directory -j2 setup lint
	@$(MAKE) --no-print-directory unit rustdoc docs

quick: fmt ## run format check, clippy and unit tests, without setup
	$(CARGO) clippy --workspace --lib --bins --locked -- -D warnings
	$(CARGO) test --workspace --lib --bins --locked

setup: ## install missing test dependencies (Python with venv, promtool, Chromium, Go, containerd, buildah), and build Kubernetes once
	@hack/setup.sh

fmt: ## check the format with rustfmt
	$(CARGO) fmt --all --check

lint: ## run clippy; warnings are errors
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings

unit: ## run all tests
	$(CARGO) test --workspace --locked

# With --examples, Cargo uses the features of the tests, and so the dependencies that clippy has already checked.
rustdoc: ## build the API documentation; warnings are errors
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --no-deps --locked --lib --bin octavo --bin nvml-simctl --examples

docs: ## build the documentation site (target/docs) and check its links
	@hack/docs.sh

man: ## write the manual pages (target/man)
	$(CARGO) run --locked --example man -- target/man

golden: ## rewrite the golden files and generated pages from the current output; review the diff before you commit it
	OCTAVO_GOLDEN=rewrite TRYCMD=overwrite $(CARGO) test --locked --test it -- cli command_reference doctor labels layouts mig_parted migration offers plan readme sysfs demo::each demo::cluster::p3 hardware monitoring::reasons monitoring::reference recorded_stream rest::reference deploy::chart::manifests deploy::policies deploy::values_page

screenshots: ## take screenshots of the web pages for the documentation (docs/images)
	@mkdir -p docs/images
	OCTAVO_SCREENSHOTS=$(CURDIR)/docs/images $(CARGO) test --locked --test it-cluster -- pages::shots
	$(CARGO) build --workspace --bins --lib --locked
	@hack/screenshots.sh

recording: ## record the tour of the demo for the README (docs/images/tour.svg)
	$(CARGO) build --workspace --bins --lib --locked
	@hack/recording.sh

bench: ## measure startup, memory, CPU, applies, a cluster, and the aggregator under load (docs/performance.md)
	@hack/bench.sh

bench-fleet: ## measure the aggregator with 18,000 agents over real connections, restarts, a day of changes, and 100,000 nodes in memory
	ulimit -n "$$(ulimit -Hn)" && $(CARGO) bench --locked --bench fleet -- 18000

fuzz: ## decode randomly changed input of every format; FUZZ_TARGET=status selects one, FUZZ_SECONDS=600 sets the duration
	$(CARGO) bench --locked --profile release --bench fuzz

fleet-simulation: ## simulate a fleet with random faults; FLEET_SEEDS=500 sets the number of seeds, FLEET_SEED=7 the first one
	$(CARGO) run --release --locked --package fleet-simulation

crash-sweep: setup ## kill agent and command at every call, truncate their files at every byte, and run 300 sequences of claims (about 2 hours)
	export OCTAVO_CRASH_SWEEP=full TMPDIR="$$(test -w /dev/shm && echo /dev/shm || echo "$${TMPDIR:-/tmp}")" && \
	  $(CARGO) test --locked --test it -- crash:: --nocapture --test-threads=1 && \
	  $(CARGO) test --locked --test it-cluster -- crashes::i3 sequences::i3 --nocapture --test-threads=1

focus-validate: ## validate the expected FOCUS export with the FinOps validator; needs python3.12
	@hack/focus-validate.sh

e2e: setup ## run only the tests with an API server, nodes, a browser or images
	$(CARGO) test --locked --test it-cluster

cluster-up: setup ## start a Kubernetes cluster with two nodes on this machine, and print its KUBECONFIG
	@hack/cluster/up.sh 1 2

cluster-down: ## stop that cluster, and remove everything except logs
	@hack/cluster/down.sh

image: setup ## build and check the container images, without a daemon or a registry (target/image)
	@hack/image.sh

release: ## build all files of a release (dist); VERSION=0.1.0, and optionally BASE_URL=https://… for the manifest for krew
	@hack/release.sh $(VERSION) $(if $(BASE_URL),--base-url $(BASE_URL))

house: ## print size and structure of the code with their targets; hack/house.sh --build also measures builds
	@hack/house.sh

clean: ## remove build output
	$(CARGO) clean
