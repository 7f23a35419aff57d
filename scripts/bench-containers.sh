#!/usr/bin/env bash
# Prints the figures of images without an engine and of contexts in containers, beside docker in the same run.
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/venv.sh .test/venv "11 10 9" -r tests/requirements-dev.txt >/dev/null
echo "machine: $(nproc) cores, $(uname -sr), $(.test/venv/bin/python --version), commit $(git rev-parse --short HEAD 2>/dev/null || echo none), $(date -u +%F)"
.test/venv/bin/python benches/image.py "$@"
exec .test/venv/bin/python benches/containers.py
