#!/usr/bin/env bash
# Writes the API reference into target/reference: the renderer, which the local stack serves at /docs, and index.html, one
# file with everything in it, to open or to publish. Needs npm.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

out=target/reference
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$out"

npm pack --silent --pack-destination "$work" redoc@2.5.4 >/dev/null
tar -xzf "$work"/redoc-*.tgz -C "$work" package/bundles/redoc.standalone.js
npx --yes @redocly/cli@2.77.0 bundle openapi.yaml --output "$work/openapi.json" 2>/dev/null
node - "$work" local/stack/src/gateway/reference.html "$out/index.html" <<'JS'
const { readFileSync, writeFileSync } = require("node:fs");
const [, , work, page, out] = process.argv;
const renderer = readFileSync(`${work}/package/bundles/redoc.standalone.js`, "utf8").replaceAll("</script", "<\\/script");
const openapi = JSON.stringify(JSON.parse(readFileSync(`${work}/openapi.json`, "utf8"))).replaceAll("<", "\\u003c");
const inline = `<script type="application/json" id="openapi">${openapi}</script>\n<script>${renderer}</script>`;
const text = readFileSync(page, "utf8");
const whole = text.replace('<script src="/docs/redoc.standalone.js"></script>', () => inline);
if (whole === text) throw new Error("the page does not load the renderer");
writeFileSync(out, whole);
JS
mv "$work/package/bundles/redoc.standalone.js" "$out/"
echo "wrote $out/index.html ($(du -k "$out/index.html" | cut -f1) KiB); a running stack serves it at /docs"
