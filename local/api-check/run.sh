#!/usr/bin/env bash
# Tests the API against openapi.yaml with requests generated from it. `check.py --help` lists the options.
# Installs the tester into target/api-check/venv. With TIDEMARK_API_CHECK=if-possible, a failed installation is reported
# and is not an error.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

venv=${CARGO_TARGET_DIR:-target}/api-check/venv
if ! local/venv.sh local/api-check/requirements.txt "$venv"; then
    [ "${TIDEMARK_API_CHECK:-}" = if-possible ] || exit 1
    echo "api-check: SKIPPED, the API was not tested against openapi.yaml" >&2
    exit
fi
exec "$venv/bin/python" local/api-check/check.py "$@"
