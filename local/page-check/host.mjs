// A static host on an origin of its own, with the page and the TypeScript client.

import { readFile } from "node:fs/promises";
import { createServer } from "node:http";
import { extname, join } from "node:path";
import { fileURLToPath } from "node:url";

const root = fileURLToPath(new URL("../..", import.meta.url));
const FOLDERS = {
  "/page/": join(root, "local/stack/src/gateway/page"),
  "/client/": join(root, "clients/typescript/dist"),
};
const TYPES = { ".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".mjs": "text/javascript" };
const EMPTY = "<!doctype html>";

/** Returns `{ url, close }`. */
export async function serve() {
  const server = createServer(async ({ url }, response) => {
    const { pathname } = new URL(url, "http://host");
    if (pathname === "/") return response.setHeader("Content-Type", "text/html").end(EMPTY);
    const folder = Object.keys(FOLDERS).find((prefix) => pathname.startsWith(prefix));
    const file = folder && join(FOLDERS[folder], pathname.slice(folder.length) || "index.html");
    const content = file && (await readFile(file).catch(() => undefined));
    if (!content) return response.writeHead(404).end();
    response.setHeader("Content-Type", TYPES[extname(file)] ?? "text/plain").end(content);
  });
  await new Promise((listening) => server.listen(0, "127.0.0.1", listening));
  return { url: `http://127.0.0.1:${server.address().port}`, close: () => server.close() };
}
