#!/usr/bin/env bash
# `with_stack.sh command…`: starts the local stack on a free port with empty data, runs the command with the address in
# TIDEMARK_URL, and stops the stack. TIDEMARK_STACK is the binary. A TIDEMARK_URL that is set already is used instead.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

if [ -n "${TIDEMARK_URL:-}" ]; then
    exec "$@"
fi

work=$(mktemp -d)
touch "$work/out"
# Few enough reactions for a test to reach the limit.
export TIDEMARK_PARAM_LimitReactions=20
(cd "$root" && TIDEMARK_ADDR=127.0.0.1:0 TIDEMARK_DATA=$work/data exec "${TIDEMARK_STACK:-$root/target/debug/tidemark-local}") \
    >"$work/out" 2>"$work/log" &
stack=$!
trap 'kill "$stack" 2>/dev/null || true; wait "$stack" 2>/dev/null || true; rm -rf "$work"' EXIT

until grep -q '^  page and API' "$work/out"; do
    if ! kill -0 "$stack" 2>/dev/null; then
        echo "with_stack: the stack did not start:" >&2
        cat "$work/log" >&2
        exit 1
    fi
    sleep 0.1
done
TIDEMARK_URL=$(sed -n 's|^  page and API  \(http.*\)/$|\1|p' "$work/out")
export TIDEMARK_URL
if ! "$@"; then
    tail -n 50 "$work/log" >&2
    exit 1
fi
