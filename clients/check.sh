#!/usr/bin/env bash
# Generates, packs, checks and tests the clients. `check.sh pack` only generates and packs them, and needs no stack.
# Installs what it needs under target/clients and node_modules.
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

# Packs and installs, as an application does: in an empty directory, from the file.
typescript_pack() {
    cd clients/typescript
    section "typescript: generate" npm run --silent generate
    section "typescript: build" npm run --silent build
    section "typescript: pack" npm pack --silent --pack-destination "$out"
    rm -rf "$out/typescript-app" && mkdir -p "$out/typescript-app"
    echo '{"type":"module"}' >"$out/typescript-app/package.json"
    section "typescript: install" npm --prefix "$out/typescript-app" install --silent --no-audit --no-fund --offline \
        --install-links "$out"/tidemark-client-*.tgz
}

python_pack() {
    cd clients/python
    section "python: generate" "$python" generate.py
    section "python: pack" "$python" -m build --no-isolation --outdir "$out" . | tail -n 1
    rm -rf "$out/python-app" && mkdir -p "$out/python-app"
    python3 -m venv --without-pip "$out/python-app/venv"
    section "python: install" "$python" -m pip --python "$out/python-app/venv/bin/python" install --quiet \
        --disable-pip-version-check "$(echo "$out"/tidemark_client-*.whl)[live]"
}

# The first program in README.md, for the stack that runs.
first_program() {
    awk '/^```/ { inside = !inside; if (!inside) exit; next } inside' README.md | sed "s|http://127.0.0.1:3000|$TIDEMARK_URL|"
}

typescript_test() {
    export TIDEMARK_APP=$out/typescript-app
    cd clients/typescript
    cp examples/*.ts "$TIDEMARK_APP"
    first_program >"$TIDEMARK_APP/readme.ts"
    section "typescript: types of the examples" node_modules/.bin/tsc --strict --target es2022 --module nodenext --types node \
        --typeRoots node_modules/@types "$TIDEMARK_APP"/{home,readme}.ts
    section "typescript: test" npm test --silent
    section "typescript: the program in README" node "$TIDEMARK_APP/readme.js"
}

python_test() {
    export TIDEMARK_APP=$out/python-app
    cd clients/python
    cp examples/*.py "$TIDEMARK_APP"
    first_program >"$TIDEMARK_APP/readme.py"
    section "python: types" "$python" -m mypy --cache-dir "$out/mypy"
    (cd "$TIDEMARK_APP" && section "python: types of the examples" "$python" -m mypy --strict --cache-dir "$out/mypy-app" \
        --python-executable venv/bin/python home.py readme.py)
    PYTHONPATH=$(echo "$TIDEMARK_APP"/venv/lib/python*/site-packages) section "python: test" "$python" -m pytest
    section "python: the program in README" "$TIDEMARK_APP/venv/bin/python" "$TIDEMARK_APP/readme.py"
}

# Runs a function for both languages at the same time, because both mostly wait, and prints what they print in turn.
both() {
    local language jobs=() failed=0
    for language in typescript python; do
        "${language}_$1" >"$out/$language.log" 2>&1 &
        jobs+=($!)
    done
    for language in typescript python; do
        wait "${jobs[0]}" || failed=1
        jobs=("${jobs[@]:1}")
        cat "$out/$language.log"
    done
    return "$failed"
}

if [ "${1:-}" = inside ]; then
    both test
    exit
fi

if ! install; then
    [ "${TIDEMARK_CLIENTS:-}" = if-possible ] || exit 1
    echo "clients: SKIPPED, the clients were not tested" >&2
    exit
fi
rm -f "$out"/*.tgz "$out"/*.whl "$out"/*.tar.gz
both pack
ls "$out" | grep -E '\.(tgz|whl|tar\.gz)$' | sed "s|^|packed: $out/|"
[ "${1:-}" = pack ] || clients/with_stack.sh "$0" inside
