#!/usr/bin/env bash
# `venv.sh requirements folder`: creates a virtual environment in the folder, or updates it if the file has changed.
set -euo pipefail
requirements=$1
venv=$2

if ! cmp -s "$requirements" "$venv/requirements.txt"; then
    if ! python3 -m venv "$venv"; then
        echo "python3 with venv is missing; on Debian: apt-get install python3-venv" >&2
        exit 1
    fi
    echo "== pip install -r $requirements (into $venv)"
    "$venv/bin/pip" install --quiet --disable-pip-version-check -r "$requirements"
    cp "$requirements" "$venv/requirements.txt"
fi
