#!/usr/bin/env bash
# Lints the template as it is written and as SAM expands it, without an AWS account. Installs the linters into
# target/sam-venv. Needs python3, and the package index the first time.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

target=${CARGO_TARGET_DIR:-target}
venv=$target/sam-venv
export SAM_CLI_TELEMETRY=0 AWS_DEFAULT_REGION=us-east-1

local/venv.sh local/sam/requirements.txt "$venv"

echo "== sam validate --lint"
"$venv/bin/sam" validate --lint --template template.yaml --region "$AWS_DEFAULT_REGION"
echo "== expand"
"$venv/bin/python" local/sam/expand.py template.yaml "$target/template.expanded.json"
echo "== cfn-lint template.yaml"
lint=("$venv/bin/cfn-lint" --non-zero-exit-code informational --include-checks I --regions "$AWS_DEFAULT_REGION")
"${lint[@]}" --template template.yaml
echo "== cfn-lint $target/template.expanded.json"
# W2001 reports unused parameters. The expanded template does not use DeploymentPreference, because SAM has used it. The
# check is on for the template as written.
"${lint[@]}" --ignore-checks W2001 --template "$target/template.expanded.json"
echo "template.yaml: 0 errors, 0 warnings, as written and as expanded"
