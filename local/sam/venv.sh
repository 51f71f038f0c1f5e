#!/usr/bin/env bash
# `venv.sh folder`: creates the virtual environment of SAM and the linters, or updates it if requirements.txt has changed.
set -euo pipefail
requirements=$(dirname "${BASH_SOURCE[0]}")/requirements.txt
venv=$1

if ! cmp -s "$requirements" "$venv/requirements.txt"; then
    if ! python3 -m venv "$venv"; then
        echo "python3 with venv is missing; on Debian: apt-get install python3-venv" >&2
        exit 1
    fi
    echo "== pip install -r $requirements (into $venv)"
    "$venv/bin/pip" install --quiet --disable-pip-version-check -r "$requirements"
    cp "$requirements" "$venv/requirements.txt"
fi
