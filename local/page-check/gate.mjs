// A way to the stack that a test can close, which cuts the connections on it.

import { connect, createServer } from "node:net";

export class Gate {
  #open = new Set();
  #port = 0;

  constructor(target) {
    this.target = new URL(target);
  }

  /** Opens the gate, at the same address if it was open before. */
  async open() {
    this.server = createServer((client) => {
      const upstream = connect(Number(this.target.port), this.target.hostname);
      for (const [from, to] of [[client, upstream], [upstream, client]]) {
        this.#open.add(from);
        from.on("error", () => {}).on("close", () => (this.#open.delete(from), to.destroy())).pipe(to);
      }
    });
    await new Promise((listening) => this.server.listen(this.#port, "127.0.0.1", listening));
    this.#port = this.server.address().port;
    this.live = `ws://127.0.0.1:${this.#port}/v1/live`;
    return this;
  }

  close() {
    this.server.close();
    for (const socket of this.#open) socket.destroy();
  }
}
