#!/usr/bin/env bash
# Both main jobs on real packages, in a folder of its own (.demo): build, create, train; serve, drive; each again, cached.
set -euo pipefail
cd "$(dirname "$0")/.."
began=$(date +%s)
steps=${DEMO_STEPS:-2000}
export ENVHARNESS_HOME=$PWD/.demo/home ENVHARNESS_CACHE=$PWD/.demo/cache

echo "== Building envharness into .demo/venv (torch 2.0.1 wants Python 3.9 to 3.11)"
scripts/venv.sh .demo/venv "11 10 9" >/dev/null
built=$(date +%s)
python=.demo/venv/bin/python

echo "== First time: lock, download, install, train for $steps steps"
"$python" examples/test_envharness.py examples/task_spec.yaml "$steps"
first=$(date +%s)

echo "== Second time: everything is there"
again=$(date +%s%N)
"$python" examples/test_envharness.py
again=$((($(date +%s%N) - again) / 1000000))

echo "== From the command line"
PATH=$PWD/.demo/venv/bin:$PATH
shell=$(date +%s%N)
envharness run examples/task_spec.yaml -- python -c 'import gymnasium; print("gymnasium", gymnasium.__version__)'
shell=$((($(date +%s%N) - shell) / 1000000))
envharness list
rest=$(ENVHARNESS_HOME=$ENVHARNESS_HOME "$python" scripts/time_create.py examples/task_spec.yaml)

echo "== Serving: an env package from its own rigged environment, 100 sessions against it; then the same again, cached"
serve=$(date +%s%N)
"$python" examples/serve_and_drive.py examples/guess 100
serve=$((($(date +%s%N) - serve) / 1000000))
cached=$(date +%s%N)
"$python" examples/serve_and_drive.py examples/guess 100
cached=$((($(date +%s%N) - cached) / 1000000))

cat <<TEXT

== What happened
  built envharness (Rust and Python)          $((built - began)) s
  locked, downloaded, installed and trained   $((first - built)) s
  the same script again, without training     $again ms, of which most is importing torch
  a command in it from the shell              $shell ms
  $rest
  rigged, served and played 100 episodes      $serve ms, and again $cached ms
  all in all                                  $(($(date +%s) - began)) s
TEXT
