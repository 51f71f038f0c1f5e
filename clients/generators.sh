#!/usr/bin/env bash
# Generates clients from openapi.yaml with well-known generators. Compiles those for Python, TypeScript and Go and runs
# them through follow, publish, feed, mark and an error against a stack (clients/generators/flow.*).
# TIDEMARK_STACK is the stack's binary. Installs the generators into target/generators.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

out=$(realpath -m "${CARGO_TARGET_DIR:-target}/generators")
node_modules=$PWD/clients/typescript/node_modules
failed=0

# Prints a line of the table: name, result, seconds. The output is in a log.
try() {
    local name=$1 since=$SECONDS log result=ok
    shift
    log=$out/${name// /-}.log
    "$@" >"$log" 2>&1 || result="FAILED, see $log"
    [ "$result" = ok ] || failed=1
    printf '%-34s %s (%d s)\n' "$name" "$result" "$((SECONDS - since))"
}

# openapi-generator exits with 0 after some errors.
generator() {
    rm -rf "${out:?}/$1"
    "$out/venv/bin/openapi-generator-cli" generate -g "$1" -i openapi.yaml -o "$out/$1" "${@:2}" 2>&1 | tee "$out/$1.output"
    ! grep -qE '^\[main\] ERROR|^Exception' "$out/$1.output"
}

python_client() {
    "$out/venv/bin/openapi-python-client" generate --path openapi.yaml --output-path "$out/openapi-python-client" --overwrite \
        --fail-on-warning --config <(echo 'post_hooks: []')
}

compile_python() {
    "$out/venv/bin/python" -m compileall -q "$out/python/openapi_client"
}

compile_typescript() {
    cp clients/generators/flow.ts "$out/typescript-fetch/"
    echo '{"type":"module"}' >"$out/typescript-fetch/package.json"
    "$node_modules/.bin/tsc" --strict --target es2022 --module nodenext --types node --typeRoots "$node_modules/@types" \
        --outDir "$out/typescript-fetch/js" "$out/typescript-fetch/flow.ts"
}

# The module proxy of Go is not reachable everywhere. The one library that the client needs is a Debian package.
compile_go() (
    local library=/usr/share/gocode/src/gopkg.in/validator.v2
    [ -d "$library" ] || { echo "missing: apt-get install golang-go golang-gopkg-validator.v2-dev"; return 1; }
    cd "$out/go"
    rm -rf test && mkdir -p validator flow
    cp "$library"/{builtins,doc,validator}.go validator/
    echo 'module gopkg.in/validator.v2' >validator/go.mod
    printf '%s\n' 'module github.com/tidemark/tidemark-go' 'go 1.18' 'require gopkg.in/validator.v2 v2.0.1' \
        'replace gopkg.in/validator.v2 => ./validator' >go.mod
    cp "$OLDPWD/clients/generators/flow.go" flow/main.go
    GOFLAGS=-mod=mod GOPROXY=off go vet . ./flow
    GOFLAGS=-mod=mod GOPROXY=off go build -o flow.exe ./flow
)

run_all() {
    try "run python" env PYTHONPATH="$out/python" timeout 60 "$out/venv/bin/python" clients/generators/flow.py
    try "run typescript-fetch" timeout 60 node "$out/typescript-fetch/js/flow.js"
    try "run go" timeout 60 "$out/go/flow.exe"
    cat "$out"/run-{python,typescript-fetch,go}.log
    exit "$failed"
}

if [ "${1:-}" = inside ]; then
    run_all
fi

mkdir -p "$out"
local/venv.sh clients/generators/requirements.txt "$out/venv"
[ -d "$node_modules" ] || npm --prefix clients/typescript ci --no-audit --no-fund --loglevel=error

try redocly npx --yes @redocly/cli@2.77.0 lint openapi.yaml
try spectral npx --yes @stoplight/spectral-cli@6.16.3 lint --ruleset local/api-check/spectral.yaml --fail-severity warn openapi.yaml
try openapi-typescript "$node_modules/.bin/openapi-typescript" openapi.yaml --output "$out/schema.ts"
try openapi-python-client python_client
try python generator python
try typescript-fetch generator typescript-fetch --additional-properties importFileExtension=.js
try go generator go --git-user-id tidemark --git-repo-id tidemark-go --package-name tidemark
for language in rust java csharp kotlin; do
    try "$language" generator "$language"
done
try "compile python" compile_python
try "compile typescript-fetch" compile_typescript
try "compile go" compile_go
clients/with_stack.sh "$0" inside || failed=1
exit "$failed"
