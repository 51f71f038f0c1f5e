#!/usr/bin/env bash
# `venv.sh requirements folder`: creates a virtual environment in the folder, again if the file has changed. Installs
# Python with venv if it is missing.
set -euo pipefail
requirements=$1
venv=$2

if ! cmp -s "$requirements" "$venv/requirements.txt"; then
    "$(dirname "${BASH_SOURCE[0]}")/setup.sh" python
    echo "== pip install -r $requirements (into $venv)"
    python3 -m venv --clear "$venv"
    "$venv/bin/pip" install --quiet --disable-pip-version-check -r "$requirements"
    cp "$requirements" "$venv/requirements.txt"
fi
