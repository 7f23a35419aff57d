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
need chromium chromium
need patchelf patchelf
need skopeo skopeo
need docker-registry docker-registry
need busybox busybox-static
need dockerd docker.io
need podman podman
need catatonit catatonit
need runsc runsc
need htpasswd apache2-utils
need mkfs.btrfs btrfs-progs
log=$(mktemp)
trap 'rm -f "$log"' EXIT

number() { # WORDS LINE: the sum of the counts before any of WORDS ("failed|error"); 0 where there is none
    { grep -oE "[0-9]+ ($1)" <<<"$2" || true; } | awk '{ n += $1 } END { print n + 0 }'
}
count() { # LOG: adds up the last line of a run of pytest
    local last
    last=$(tail -n 1 "$1")
    passed=$((passed + $(number passed "$last")))
    skipped=$((skipped + $(number skipped "$last")))
    failed=$((failed + $(number 'failed|error' "$last")))
}

echo "== Rust tests"
cargo test --release --workspace --locked --quiet 2>&1 | tee "$log"
rust=$(number passed "$(cat "$log")")

echo "== Building the package into .test/venv"
scripts/venv.sh .test/venv "11 10 9 12 13" -r tests/requirements-dev.txt >/dev/null

passed=0 failed=0 skipped=0

# They wait more than they work, so that several run at once.
shopt -s nullglob
together=(tests/test_{serve,client,vector,local,gym,protocol,compat,examples}*.py)
apart=()
for file in "${together[@]}"; do apart+=("--ignore=$file"); done
status=0
echo "== Whole-system tests of rigging"
.test/venv/bin/python -m pytest -q --durations=5 "${apart[@]}" "$@" 2>&1 | tee "$log" || status=1
count "$log"
echo "== Whole-system tests of serving and driving, several at once"
.test/venv/bin/python -m pytest -q --durations=10 -n 4 --dist loadgroup "${together[@]}" 2>&1 | tee "$log" || status=1
count "$log"
# A suite that did not run is no success, whatever it counted.
[ "$status" -eq 0 ] || [ "$failed" -gt 0 ] || failed=1
echo "== $rust Rust tests and $passed whole-system tests in $(($(date +%s) - began)) s"
echo "$((rust + passed)) passed, $failed failed, $skipped skipped"
exit "$status"
