#!/usr/bin/env bash
# Generates, checks, tests and packs the clients. Installs what it needs under target/clients and node_modules.
# TIDEMARK_STACK is the stack's binary. With TIDEMARK_CLIENTS=if-possible, a failed installation is reported and is not
# an error.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

out=$(realpath -m "${CARGO_TARGET_DIR:-target}/clients")
python=$out/venv/bin/python
mkdir -p "$out"

node_20() {
    node -e 'process.exit(Number(process.versions.node.split(".")[0]) >= 20 ? 0 : 1)' 2>/dev/null && command -v npm >/dev/null && return
    echo "clients: Node 20 or newer with npm is missing (https://nodejs.org)" >&2
    return 1
}

install() {
    node_20 && local/venv.sh clients/python/requirements.txt "$out/venv" || return 1
    [ clients/typescript/node_modules/.package-lock.json -nt clients/typescript/package-lock.json ] ||
        npm --prefix clients/typescript ci --no-audit --no-fund --loglevel=error
}

section() {
    printf '== %s\n' "$1"
    shift
    "$@"
}

# The first program in README.md, for the stack that runs.
first_program() {
    awk '/^```/ { inside = !inside; if (!inside) exit; next } inside' README.md | sed "s|http://127.0.0.1:3000|$TIDEMARK_URL|"
}

typescript_readme() {
    local app=$out/typescript-readme
    rm -rf "$app" && mkdir -p "$app"
    echo '{"type":"module"}' >"$app/package.json"
    first_program >"$app/program.ts"
    npm --prefix "$app" install --silent --no-audit --no-fund --install-links "$out"/tidemark-client-*.tgz
    node_modules/.bin/tsc --strict --target es2022 --module nodenext --types node --typeRoots node_modules/@types "$app/program.ts"
    node "$app/program.js"
}

typescript_client() {
    cd clients/typescript
    section "typescript: generate" npm run --silent generate
    section "typescript: build" npm run --silent build
    section "typescript: test" npm test --silent
    section "typescript: pack" npm pack --silent --pack-destination "$out"
    section "typescript: the program in README" typescript_readme
}

python_client() {
    cd clients/python
    section "python: generate" "$python" generate.py
    section "python: types" "$python" -m mypy --cache-dir "$out/mypy"
    section "python: pack" "$python" -m build --no-isolation --outdir "$out" .
    "$python" -m pip install --quiet --disable-pip-version-check --no-deps --force-reinstall "$out"/tidemark_client-*.whl
    section "python: test the package" "$python" -m pytest
    section "python: the program in README" "$python" <(first_program)
}

if [ "${1:-}" = inside ]; then
    (typescript_client)
    (python_client)
    ls "$out" | grep -E '\.(tgz|whl|tar\.gz)$' | sed "s|^|packed: $out/|"
    exit
fi

if ! install; then
    [ "${TIDEMARK_CLIENTS:-}" = if-possible ] || exit 1
    echo "clients: SKIPPED, the clients were not tested" >&2
    exit
fi
rm -f "$out"/*.tgz "$out"/*.whl "$out"/*.tar.gz
clients/with_stack.sh "$0" inside
