#!/usr/bin/env bash
# Checks that every link from one document to another resolves, anchors included. Requests no page of the web.
# Installs lychee into target/docs-venv. Needs python3 with venv, and the package index the first time.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

requirements=local/docs/requirements.txt
venv=${CARGO_TARGET_DIR:-target}/docs-venv

if ! cmp -s "$requirements" "$venv/requirements.txt"; then
    if ! python3 -m venv "$venv"; then
        echo "python3 with venv is missing; on Debian: apt-get install python3-venv" >&2
        exit 1
    fi
    echo "== pip install -r $requirements (into $venv)"
    "$venv/bin/pip" install --quiet --disable-pip-version-check -r "$requirements"
    cp "$requirements" "$venv/requirements.txt"
fi

echo "== lychee --offline"
exec "$venv/bin/lychee" --offline --include-fragments --no-progress -- ./*.md 'docs/**/*.md'
