#!/usr/bin/env bash
# Prints the figures of driving environments, each beside openenv's, gymnasium's or EnvPool's in the same run.
set -euo pipefail
cd "$(dirname "$0")/.."
bench=${ENVHARNESS_BENCH_DIR:-.bench}
mkdir -p "$bench"
echo '*' >"$bench/.gitignore"
scripts/venv.sh "$bench/drive" "11 12 10" >/dev/null
python="$bench/drive/bin/python"
"$bench/drive/bin/uv" pip install --quiet --python "$python" numpy gymnasium pydantic msgspec
echo "machine: $(nproc) cores, $(uname -sr), $("$python" --version), commit $(git rev-parse --short HEAD 2>/dev/null || echo none), $(date -u +%F)"
exec "$python" benches/drive.py "$@"
