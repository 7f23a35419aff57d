#!/usr/bin/env bash
# Prints the figures of the server, each beside openenv's own server in the same run.
set -euo pipefail
cd "$(dirname "$0")/.."
bench=${ENVHARNESS_BENCH_DIR:-.bench}
mkdir -p "$bench"
echo '*' >"$bench/.gitignore"
cargo build --release --quiet -p envharness-loadgen
scripts/venv.sh "$bench/venv" "11 12 10" >/dev/null
python="$bench/venv/bin/python"
echo "machine: $(nproc) cores, $(uname -sr), $("$python" --version), commit $(git rev-parse --short HEAD 2>/dev/null || echo none), $(date -u +%F)"
exec "$python" benches/serve.py "$@"
