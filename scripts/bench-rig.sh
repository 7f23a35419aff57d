#!/usr/bin/env bash
# Prints the figures of the rigger on real programs and broken specs, beside pipreqs and uv in the same run.
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/venv.sh .test/venv "11 12" -r tests/requirements-dev.txt >/dev/null
scripts/venv.sh .test/pipreqs "11 10 12" pipreqs==0.5.0 >/dev/null
echo "machine: $(nproc) cores, $(uname -sr), $(.test/venv/bin/python --version), $(.test/venv/bin/uv --version), commit $(git rev-parse --short HEAD 2>/dev/null || echo none), $(date -u +%F)"
PIPREQS=.test/pipreqs/bin/pipreqs exec .test/venv/bin/python benches/rig.py "$@"
