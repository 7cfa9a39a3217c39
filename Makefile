# Two commands do everything on a fresh machine: `make demo` and `make test`.

CARGO ?= cargo
export CARGO_TERM_COLOR ?= auto
# Where hack/setup.sh puts a Go toolchain, when the machine has none that is new enough.
export PATH := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/octavo/go/bin:$(PATH)

# `make demo DEMO_SECONDS=20`, or from the environment.
export DEMO_SECONDS

.DEFAULT_GOAL := help
.PHONY: help demo quick test setup fmt lint unit doc golden screenshots bench fuzz crash-sweep e2e cluster-up cluster-down image house clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: ## build, and run a fleet of simulated machines; DEMO_SECONDS=20 ends it, and fails if it was not seen as it is
	$(CARGO) build --workspace --bins --lib --locked
	@exec "$${CARGO_TARGET_DIR:-target}/debug/octavo" demo

test: setup fmt lint unit doc ## everything a change must pass: format, clippy, all tests, docs

quick: fmt ## format, clippy and unit tests, without setup: what to run between edits
	$(CARGO) clippy --workspace --lib --bins --locked -- -D warnings
	$(CARGO) test --workspace --lib --bins --locked

setup: ## install what the tests need and is not there (Python with venv, promtool, Chromium, Go, containerd, buildah; a Kubernetes, built once)
	@hack/setup.sh

fmt: ## formatting is as rustfmt has it
	$(CARGO) fmt --all --check

lint: ## clippy, warnings denied
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings

unit: ## all tests
	$(CARGO) test --workspace --locked

doc: ## the documentation builds without a warning
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --no-deps --locked

golden: ## rewrite the golden files from what the programs say now; read the diff before you commit it
	OCTAVO_GOLDEN=rewrite TRYCMD=overwrite $(CARGO) test --locked --test it -- cli doctor labels layouts mig_parted offers plan sysfs demo::each hardware monitoring::reasons rest::reference deploy::chart::manifests

screenshots: ## photograph the pages for the documentation (docs/images)
	@mkdir -p docs/images
	OCTAVO_SCREENSHOTS=$(CURDIR)/docs/images $(CARGO) test --locked --test it-cluster -- browser::shots

bench: ## measure: start to labels, memory, idle CPU; applies; in a cluster; the aggregator under a swarm (docs/performance.md)
	@hack/bench.sh

fuzz: ## change layout files at random and read them; FUZZ_SECONDS=600 for longer, FUZZ_SEED=1 for the same again
	$(CARGO) bench --locked --bench fuzz_layouts

crash-sweep: ## kill agent and command at every call, also for another layout, and tear the journal at every byte (about half an hour)
	OCTAVO_CRASH_SWEEP=full TMPDIR="$$(test -w /dev/shm && echo /dev/shm || echo "$${TMPDIR:-/tmp}")" \
	  $(CARGO) test --locked --test it -- crash:: --nocapture --test-threads=1

e2e: setup ## only the tests with a real API server, real nodes, a browser or images
	$(CARGO) test --locked --test it-cluster

cluster-up: setup ## a Kubernetes with two nodes on this machine, for people; says how to reach it
	@hack/cluster/up.sh 1 2

cluster-down: ## end that, and leave nothing of it but logs
	@hack/cluster/down.sh

image: setup ## the container images, built and checked without a daemon or a registry (target/image)
	@hack/image.sh

house: ## structure figures of the code beside their targets; hack/house.sh --build measures builds too
	@hack/house.sh

clean: ## remove what was built here
	$(CARGO) clean
