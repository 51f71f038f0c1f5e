// A clone of this repository, and the stack that `make run` builds and serves there.

import assert from "node:assert/strict";
import { execSync, spawn } from "node:child_process";
import { rmSync } from "node:fs";
import { connect } from "node:net";
import { join, resolve } from "node:path";
import { Stack, until } from "./stack.mjs";

const BUILD_SECONDS = 25 * 60;

/** Runs a command, and returns what a terminal shows of it. */
export const shell = (command, cwd) => `$ ${command}\n${execSync(`(${command}) 2>&1`, { cwd, encoding: "utf8" })}`;

export class Clone extends Stack {
  /** What `make run` has printed. */
  terminal = "";

  /** Takes the clone at `folder`, or makes one. What is made or started ends with this process, unless that is killed with SIGKILL. */
  constructor(folder) {
    super();
    for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"]) process.once(signal, () => process.exit(1));
    process.on("exit", () => {
      try {
        if (this.runs()) process.kill(-this.process.pid, "SIGKILL");
      } finally {
        rmSync(this.data, { recursive: true, force: true, maxRetries: 5 });
      }
    });
    this.folder = folder ? resolve(folder) : join(this.data, "tidemark");
    this.entered = shell(folder ? `cd "${this.folder}"` : `git clone "${process.cwd()}" tidemark && cd tidemark`, this.data);
  }

  runs = () => this.process?.exitCode === null && this.process.signalCode === null;

  async start() {
    // Nothing of the `make` that runs this.
    const inherited = Object.entries(process.env).filter(([name]) => !/^(ARGS$|CARGO_TARGET_DIR$|MAKE|MFLAGS$|REDIS_|RUST_LOG$|TIDEMARK_)/.test(name));
    const env = { ...Object.fromEntries(inherited), TIDEMARK_ADDR: this.address, TIDEMARK_DATA: join(this.data, "facts") };
    this.terminal = "$ make run\n";
    this.process = spawn("make", ["run"], { cwd: this.folder, env, detached: true, stdio: ["ignore", "pipe", "pipe"] });
    for (const output of [this.process.stdout, this.process.stderr]) output.setEncoding("utf8").on("data", (text) => (this.terminal += text));
    const [, url, port] = await this.prints(/page and API +(http:\/\/[^/]+)[^]*Redis +redis:\/\/127\.0\.0\.1:(\d+)[^]*\/v1\/feed\n/, BUILD_SECONDS);
    Object.assign(this, { url, port: Number(port) });
  }

  async prints(pattern, seconds) {
    await until(`make run prints ${pattern}`, () => (assert.ok(this.runs(), this.terminal.slice(-2000)), pattern.test(this.terminal)), seconds);
    return pattern.exec(this.terminal);
  }

  /** Ends the stack as Ctrl-C does. */
  async stop() {
    process.kill(-this.process.pid, "SIGINT");
    await until("make run has ended", () => !this.runs(), 60);
  }

  /** Sends commands to Redis, and returns its replies. */
  async redis(...commands) {
    const socket = connect(this.port, "127.0.0.1").setEncoding("utf8");
    socket.write([...commands, "QUIT"].map((command) => `${command}\r\n`).join(""));
    return (await socket.toArray()).join("");
  }
}
