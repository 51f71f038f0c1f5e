// A stack of the check's own, on a free port and a data folder that is removed at the end.

import { spawn } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

export class Stack {
  /** `parameters` are those of the template. */
  constructor(parameters = {}) {
    this.data = mkdtempSync(join(tmpdir(), "tidemark-page-check-"));
    this.address = "127.0.0.1:0";
    this.parameters = Object.fromEntries(Object.entries(parameters).map(([name, value]) => [`TIDEMARK_PARAM_${name}`, String(value)]));
  }

  /** Starts the stack, at the same address if it ran before. */
  async start() {
    const { REDIS_URL, ...environment } = process.env;
    Object.assign(environment, this.parameters, { TIDEMARK_ADDR: this.address, TIDEMARK_DATA: this.data });
    this.process = spawn(process.env.PAGE_CHECK_STACK, { env: environment, stdio: ["ignore", "pipe", "inherit"] });
    this.ended = new Promise((done) => this.process.once("exit", done));
    let output = "";
    this.url = await new Promise((started, failed) => {
      this.process.stdout.on("data", (text) => {
        const url = (output += text).match(/page and API\s+(http:\/\/[^/\s]+)/);
        if (url) started(url[1]);
      });
      this.ended.then(() => failed(new Error(`the stack ended at its start: ${output}`)));
    });
    this.address = new URL(this.url).host;
    return this;
  }

  async stop() {
    this.process.kill("SIGTERM");
    await this.ended;
  }

  async remove() {
    await this.stop();
    rmSync(this.data, { recursive: true, force: true });
  }

  /** Sends a request as a user. Fails if the response is an error. */
  async call(token, method, path, body) {
    const headers = { Authorization: `Bearer ${token}`, "Content-Type": "application/json" };
    const response = await fetch(this.url + path, { method, headers, body: body && JSON.stringify(body) });
    const text = await response.text();
    if (!response.ok) throw new Error(`${method} ${path} as ${token}: ${response.status} ${text}`);
    return text ? JSON.parse(text) : null;
  }

  publish = (author, title, body) => this.call(author, "POST", "/v1/posts", { title, body });
  follow = (reader, author) => this.call(reader, "PUT", `/v1/following/${author}`);

  /** Waits until no queue, stream or function holds work. */
  idle = () => until("the stack is idle", async () => (await this.call("1", "GET", "/_local/status")).idle);
}

/** Waits for a condition. */
export async function until(what, condition, seconds = 30) {
  for (const end = Date.now() + seconds * 1000; Date.now() < end; ) {
    if (await condition()) return;
    await new Promise((done) => setTimeout(done, 50));
  }
  throw new Error(`not within ${seconds} s: ${what}`);
}
