#!/usr/bin/env bash
# Tests the page at `/` in a real browser, on a stack of its own: `run.sh <stack's binary> [--screenshots |
# --film [clone] | options of node --test]`. Installs Chromium with apt-get if it is missing, and the packages of package.json into
# target/page-check. With --screenshots it writes docs/images/ instead, with --film the pictures of a first session into
# target/page-check/film.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
binary=$(realpath -m "$1")
shift
modules=$(realpath -m "${CARGO_TARGET_DIR:-target}/page-check")

export PAGE_CHECK_CHROMIUM=${PAGE_CHECK_CHROMIUM:-$(command -v chromium || true)}
packages=$([ -n "$PAGE_CHECK_CHROMIUM" ] || echo chromium fonts-dejavu-core; command -v npm >/dev/null || echo nodejs npm)
if [ -n "$packages" ]; then
    echo "== apt-get install $packages"
    sudo=$([ "$(id -u)" -eq 0 ] || echo sudo)
    $sudo apt-get update -qq
    # shellcheck disable=SC2086
    $sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $packages
    PAGE_CHECK_CHROMIUM=$(command -v chromium)
fi
if ! cmp -s local/page-check/package.json "$modules/installed.json"; then
    echo "== npm install (into $modules)"
    mkdir -p "$modules"
    cp local/page-check/package.json "$modules"
    npm install --prefix "$modules" --silent --no-audit --no-fund --no-package-lock
    cp local/page-check/package.json "$modules/installed.json"
fi

export PAGE_CHECK_MODULES=$modules PAGE_CHECK_STACK=$binary
if [ "${1:-}" = --screenshots ]; then
    echo "== node local/page-check/screenshots.mjs (into docs/images)"
    exec node local/page-check/screenshots.mjs
fi
if [ "${1:-}" = --film ]; then
    shift
    echo "== node local/page-check/film.mjs $* (into $modules/film)"
    exec node local/page-check/film.mjs "$@"
fi
client=clients/typescript
echo "== npm run generate, npm run build (in $client)"
[ $client/node_modules/.package-lock.json -nt $client/package-lock.json ] ||
    npm --prefix $client ci --no-audit --no-fund --loglevel=error
npm --prefix $client run --silent generate
npm --prefix $client run --silent build
echo "== node --test local/page-check/check.mjs"
exec node --test "$@" local/page-check/check.mjs
