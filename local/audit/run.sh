#!/usr/bin/env bash
# Checks the template as SAM expands it with checkov and cdk-nag. `accepted.json` has a reason for each check that is
# accepted. Any other finding is an error, and so is a reason for a check that finds nothing any more.
# Installs both into target/audit. Needs python3, npm and their package indexes the first time.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
audit=$target/audit
local/venv.sh local/sam/requirements.txt "$target/sam-venv"
local/venv.sh local/audit/requirements.txt "$audit/venv"
if ! cmp -s local/audit/package.json "$audit/installed.json"; then
    command -v npm >/dev/null || { echo "audit: npm is missing; install Node 20 or newer" >&2; exit 1; }
    echo "== npm install (into $audit)"
    cp local/audit/package.json "$audit"
    npm install --prefix "$audit" --silent --no-audit --no-fund --no-package-lock
    cp local/audit/package.json "$audit/installed.json"
fi

echo "== expand"
"$target/sam-venv/bin/python" local/sam/expand.py template.yaml "$audit/template.json"
echo "== checkov"
"$audit/venv/bin/checkov" --file "$audit/template.json" --framework cloudformation --quiet --soft-fail --skip-download --output json >"$audit/checkov.json"
echo "== cdk-nag"
rm -f "$audit/report.txt"
# CDK prints remarks of its own, about each version of a function.
node local/audit/audit.mjs "$audit" >"$audit/cdk.log" 2>&1 || status=$?
cat "$audit/report.txt" || cat "$audit/cdk.log"
exit "${status:-0}"
