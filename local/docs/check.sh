#!/usr/bin/env bash
# Checks that every link from one document to another resolves, anchors included. Requests no page of the web.
# Installs lychee into target/docs-venv. Needs python3 with venv, and the package index the first time.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

venv=${CARGO_TARGET_DIR:-target}/docs-venv
local/venv.sh local/docs/requirements.txt "$venv"

echo "== lychee --offline"
exec "$venv/bin/lychee" --offline --include-fragments --no-progress -- ./*.md 'docs/**/*.md' 'clients/*/README.md'
