#!/bin/sh
# Tests the API against openapi.yaml with requests generated from it. `check.py --help` lists the options.
# Installs the tester into a virtual environment in the target directory, and Python's venv if it is missing.
# With TIDEMARK_API_CHECK=if-possible, a failed installation is reported and is not an error.
set -eu

here=$(CDPATH= cd -- "$(dirname -- "$0")" && pwd)
venv=${CARGO_TARGET_DIR:-$here/../../target}/api-check/venv
log=$venv.log

fail() {
    echo "api-check: $*" >&2
    [ "${TIDEMARK_API_CHECK:-}" = if-possible ] || exit 1
    echo "api-check: SKIPPED, the API was not tested against openapi.yaml" >&2
    exit 0
}

make_venv() {
    python3 -m venv --clear "$venv" >"$log" 2>&1
}

if ! cmp -s "$here/requirements.txt" "$venv/requirements.txt"; then
    echo "== $(grep -v '^#' "$here/requirements.txt") into $venv"
    mkdir -p "$(dirname -- "$venv")"
    if ! make_venv; then
        command -v apt-get >/dev/null 2>&1 || fail "python3 with venv is missing; install Python 3.10 or newer"
        sudo=
        [ "$(id -u)" -eq 0 ] || sudo=sudo
        echo "api-check: installing python3-venv with apt-get"
        { $sudo apt-get update -qq && $sudo apt-get install -y -qq --no-install-recommends python3-venv; } >"$log" 2>&1 ||
            fail "python3-venv cannot be installed, see $log"
        make_venv || fail "the virtual environment cannot be created, see $log"
    fi
    "$venv/bin/pip" install --quiet --disable-pip-version-check -r "$here/requirements.txt" >"$log" 2>&1 ||
        fail "the tester cannot be installed, see $log"
    cp "$here/requirements.txt" "$venv/requirements.txt"
fi
exec "$venv/bin/python" "$here/check.py" "$@"
