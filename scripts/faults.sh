#!/usr/bin/env bash
# The long fault runs: 1,000 random kills in create, publish and gc, and a kill at every state-changing call of each.
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/venv.sh .test/venv "11 10 9 12 13" -r tests/requirements-dev.txt >/dev/null
export ENVHARNESS_FAULT_KILLS=${ENVHARNESS_FAULT_KILLS:-1000} ENVHARNESS_FAULT_STEP=${ENVHARNESS_FAULT_STEP:-1}
export ENVHARNESS_FAULT_SEED=${ENVHARNESS_FAULT_SEED:-$RANDOM}
.test/venv/bin/python -m pytest -q -s tests/test_faults.py "$@"
