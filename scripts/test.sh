#!/usr/bin/env bash
# Builds everything into .test and runs every test: Rust's, then the whole-system ones. Ends with one summary line.
set -euo pipefail
cd "$(dirname "$0")/.."
export PIP_DISABLE_PIP_VERSION_CHECK=1
began=$(date +%s)
need() { # COMMAND PACKAGE: installs a program of the tests where it is missing and the system lets us
    command -v "$1" >/dev/null && return
    { apt-get install -y --no-install-recommends "$2" || { apt-get update && apt-get install -y --no-install-recommends "$2"; }; } >/dev/null 2>&1 ||
        echo "note: $1 is missing; tests that need it are skipped by name" >&2
}
need strace strace
need git git
log=$(mktemp)
trap 'rm -f "$log"' EXIT

echo "== Rust tests"
cargo test --release --workspace --locked --quiet 2>&1 | tee "$log"
rust=$(grep -oE '[0-9]+ passed' "$log" | awk '{ n += $1 } END { print n + 0 }')

echo "== Building the package into .test/venv"
scripts/venv.sh .test/venv "11 10 9 12 13" -r tests/requirements-dev.txt >/dev/null

echo "== Whole-system tests"
.test/venv/bin/python -m pytest -q --durations=10 "$@" 2>&1 | tee "$log"
summary=$(tail -n 1 "$log")
passed=$(grep -oE '[0-9]+ passed' <<<"$summary" | grep -oE '[0-9]+' || echo 0)
failed=$(grep -oE '[0-9]+ failed' <<<"$summary" | grep -oE '[0-9]+' || echo 0)
skipped=$(grep -oE '[0-9]+ skipped' <<<"$summary" | grep -oE '[0-9]+' || echo 0)
echo "== $rust Rust tests and $passed whole-system tests in $(($(date +%s) - began)) s"
echo "$((rust + passed)) passed, $failed failed, $skipped skipped"
