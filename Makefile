# Bare `make` lists the targets.
.DEFAULT_GOAL := help
.PHONY: help demo test check gen bench bench-conda bench-serve bench-drive bench-containers bench-rig faults clean

help: ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/' | expand -t 14

demo: ## build everything into .demo and run both main jobs on real packages
	@bash scripts/demo.sh

test: ## build everything into .test and run every test
	@bash scripts/test.sh

check: ## formatting and lints
	cargo fmt --check
	cargo clippy --release --workspace --all-targets -- -D warnings

gen: ## renew generated files: the command-line reference
	cargo run --release --quiet --bin envharness -- reference > docs/cli.md

bench: ## print the figures, each beside its peer
	@bash scripts/bench.sh

bench-conda: ## print the figures of the conda backend, beside py-rattler and uv
	@bash scripts/bench-conda.sh

bench-serve: ## print the figures of serving, beside openenv 0.10.0's own server
	@bash scripts/bench-serve.sh

bench-drive: ## print the figures of driving, beside openenv, gymnasium and EnvPool
	@bash scripts/bench-drive.sh

bench-containers: ## print the figures of images without an engine, beside docker build
	@bash scripts/bench-containers.sh

bench-rig: ## print the figures of the rigger on real programs and broken specs, beside pipreqs and uv
	@bash scripts/bench-rig.sh

faults: ## the long fault runs: kills in create, publish and gc, and of workers and servers
	@bash scripts/faults.sh

clean: ## remove what the targets above made
	chmod -R u+w .demo .test .bench 2>/dev/null || true
	rm -rf .demo .test .bench target
