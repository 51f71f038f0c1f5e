#!/usr/bin/env bash
# Measures the edit loop: starts `make watch` on a port and a data folder of its own, edits a message of a handler, and
# waits until the stack sends it. `local/watch/measure.sh [times] [arguments of make]`, such as `3 PROFILE=measured`.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

times=${1:-3}
shift $(($# > 0))
file=functions/follow/src/edges.rs
data=$(mktemp -d)
export TIDEMARK_ADDR=127.0.0.1:3017 TIDEMARK_DATA=$data
git diff --quiet -- "$file" || { echo "$file has changes" >&2; exit 1; }

setsid make watch "$@" >"$data/watch.log" 2>&1 &
watch=$!
trap 'git checkout --quiet -- "$file"; kill -TERM -- "-$watch" 2>/dev/null; wait "$watch" 2>/dev/null; rm -rf "$data"' EXIT

trap 'exit 1' INT TERM
answer() { curl -s -X PUT -H 'Authorization: Bearer 7' "http://$TIDEMARK_ADDR/v1/mutes/7" || true; }
wait_for() {
    until grep -q "$1" <<<"$(answer)"; do
        kill -0 "$watch" || { cat "$data/watch.log"; exit 1; }
        sleep 0.1
    done
}
wait_for "must be another user"
for run in $(seq "$times"); do
    started=$(date +%s.%N)
    sed -i "s/must be another user[^\"]*\"/must be another user, $run\"/" "$file"
    wait_for "another user, $run"
    echo "run $run: $(date +%s.%N) $started" | awk '{ printf "%s %s %.1f s from saving to the new answer\n", $1, $2, $3 - $4 }'
done
grep '^==' "$data/watch.log"
