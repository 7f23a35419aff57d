# Bare `make` lists the targets.
.DEFAULT_GOAL := help
.PHONY: help demo test check gen bench faults clean

help: ## list the targets
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/' | expand -t 10

demo: ## build everything into .demo and run the main job on real packages
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

faults: ## the long fault runs: 1,000 random kills and one at every state-changing call
	@bash scripts/faults.sh

clean: ## remove what the targets above made
	chmod -R u+w .demo .test 2>/dev/null || true
	rm -rf .demo .test target
