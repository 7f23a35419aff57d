#!/usr/bin/env bash
# The long fault runs: 1,000 random kills in create, publish and gc, a kill at every state-changing call of each, 100
# rounds of every way in which a worker or a server can end, and 10,000 broken connections of each kind of client.
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/venv.sh .test/venv "11 10 9 12 13" -r tests/requirements-dev.txt >/dev/null
export ENVHARNESS_FAULT_KILLS=${ENVHARNESS_FAULT_KILLS:-1000} ENVHARNESS_FAULT_STEP=${ENVHARNESS_FAULT_STEP:-1}
export ENVHARNESS_FAULT_SEED=${ENVHARNESS_FAULT_SEED:-$RANDOM}
export ENVHARNESS_FAULT_ROUNDS=${ENVHARNESS_FAULT_ROUNDS:-100}
.test/venv/bin/python -m pytest -q -s tests/test_faults.py tests/test_serve_faults.py tests/test_client_faults.py tests/test_client_resume.py "$@"
