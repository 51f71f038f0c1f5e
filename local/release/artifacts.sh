#!/usr/bin/env bash
# `artifacts.sh version target`: writes to target/release-artifacts what a release consists of: the functions for Lambda's
# arm64 as archives with their checksums, a bill of materials (CycloneDX), the notes (the changelog's section), the
# template, openapi.yaml and the packages of the clients. Fails if the version is not that of Cargo.toml and of the
# clients, or has no section.
# Installs cargo-cyclonedx under target/. The functions are built already: `make release-artifacts` does it.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
version=${1#v}
target=$2
out=$target/release-artifacts

fail() {
    echo "release: $*" >&2
    exit 1
}

[ -n "$version" ] || fail "usage: make release-artifacts VERSION=1.2.3"
declared=$(sed -n '/^\[workspace\.package\]/,/^\[/s/^version = "\(.*\)"$/\1/p' Cargo.toml)
[ "$version" = "$declared" ] || fail "the version is $version, and Cargo.toml says $declared"
for file in clients/typescript/package.json clients/python/pyproject.toml; do
    grep -qE "^ *\"?version\"?( =|:) \"$version\",?$" "$file" || fail "$file has another version than $version"
done
notes=$(awk -v heading="## [$version]" 'index($0, heading) == 1 { inside = 1; next } /^## \[/ { inside = 0 } inside' CHANGELOG.md)
[ -n "${notes//[[:space:]]/}" ] || fail "CHANGELOG.md has no section for $version"
if [ "${3:-}" = --check ]; then
    echo "release: $version can be released"
    exit
fi

rm -rf "$out"
mkdir -p "$out"
printf '%s\n' "$notes" >"$out/notes.md"
cp template.yaml samconfig.toml openapi.yaml "$out"
# The same bytes give the same archive: fixed time, order and mode.
for bootstrap in "$target"/lambda/*/bootstrap; do
    name=$(basename "$(dirname "$bootstrap")")
    python3 - "$bootstrap" "$out/$name-$version-arm64.zip" <<'PYTHON'
import sys
import zipfile

entry = zipfile.ZipInfo("bootstrap", (1980, 1, 1, 0, 0, 0))
entry.external_attr, entry.compress_type = 0o755 << 16, zipfile.ZIP_DEFLATED
with zipfile.ZipFile(sys.argv[2], "w") as archive, open(sys.argv[1], "rb") as binary:
    archive.writestr(entry, binary.read(), compresslevel=9)
PYTHON
done
if [ ! -x "$target/release-tools/bin/cargo-cyclonedx" ]; then
    cargo install --quiet --locked cargo-cyclonedx --version 0.5.9 --root "$target/release-tools"
fi
# One document for each function, of what is in its binary.
PATH=$target/release-tools/bin:$PATH cargo cyclonedx --format json --describe binaries --target aarch64-unknown-linux-gnu
find functions -name '*.cdx.json' -exec mv {} "$out" \;
find . -path "./$target" -prune -o -name '*.cdx.json' -not -path "./target/*" -exec rm {} \;
clients/check.sh pack
cp "$target"/clients/{tidemark-client-*.tgz,tidemark_client-*.whl,tidemark_client-*.tar.gz} "$out"
(cd "$out" && sha256sum -- *.zip *.tgz *.whl *.tar.gz *.json template.yaml samconfig.toml openapi.yaml >SHA256SUMS)
echo "release: $(find "$out" -name '*.zip' | wc -l) archives in $out"
