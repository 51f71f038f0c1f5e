#!/usr/bin/env bash
# Checks that comments have at most 120 characters in a line, and that every link from one document to another resolves,
# anchors included. Requests no page of the web.
# Installs lychee into target/docs-venv. Needs python3 with venv, and the package index the first time.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

# Tables and addresses may be longer.
if LC_ALL=C.UTF-8 grep -rnE '^.{121}' --include='*.rs' --include='*.lua' functions shared local tests |
    grep -E '^[^:]+:[0-9]+: *(//|--)' | grep -vE '\||https?:'; then
    echo "these comments have more than 120 characters in a line" >&2
    exit 1
fi

venv=${CARGO_TARGET_DIR:-target}/docs-venv
local/venv.sh local/docs/requirements.txt "$venv"

echo "== lychee --offline"
exec "$venv/bin/lychee" --offline --include-fragments --no-progress -- ./*.md 'docs/**/*.md' 'shared/legacy/docs/*.md' 'clients/*/README.md'
