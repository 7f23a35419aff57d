#!/usr/bin/env bash
# Makes a virtual environment with envharness in it: venv.sh FOLDER "MINOR..." [PIP-ARGUMENT...]
# MINORs are minor versions of Python 3, the preferred first. Prints the folder on success, a line of error on failure.
set -euo pipefail
folder=$1 minors=$2
shift 2
root=$(cd "$(dirname "$0")/.." && pwd)

fits() { # PYTHON: whether it works, is in the range and can make virtual environments
    "$1" -I -c "import sys, venv, ensurepip; sys.exit(not (sys.version_info[0] == 3 and str(sys.version_info[1]) in '$minors'.split()))" 2>/dev/null
}

find_python() {
    local minor candidate
    for minor in $minors; do
        for candidate in $(ls -d "${PYENV_ROOT:-$HOME/.pyenv}"/versions/3."$minor".*/bin/python 2>/dev/null | sort -rV) \
            "$(command -v "python3.$minor" || true)" "$(command -v python3 || true)"; do
            if [ -n "$candidate" ] && fits "$candidate"; then
                echo "$candidate"
                return
            fi
        done
    done
}

python=$(find_python)
if [ -z "$python" ]; then
    # uv fetches a managed build; uv itself comes from its wheel.
    boot="$folder-bootstrap"
    if python3 -m venv "$boot" 2>/dev/null && "$boot/bin/python" -m pip install --quiet uv &&
        "$boot/bin/uv" python install --quiet --install-dir "$boot/pythons" "3.${minors%% *}"; then
        python=$(ls -d "$boot"/pythons/*/bin/python3 | head -n 1)
    else
        echo "error: Python 3 with venv, minor version one of $minors, is needed and could not be fetched; install one and run again" >&2
        exit 1
    fi
fi
if [ ! -x "$folder/bin/python" ] || ! fits "$folder/bin/python"; then
    rm -rf "$folder"
    "$python" -m venv "$folder"
fi
"$folder/bin/python" -m pip install --quiet --disable-pip-version-check "$@" "$root"
echo "$folder"
