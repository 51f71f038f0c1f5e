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
        from.on("error", () => {}).on("close", () => (this.#open.delete(from), to.destroy()));
      }
      // The stack serves its own page alone, so the gate sends the stack's Host, as a reverse proxy would.
      client.once("data", (head) => {
        upstream.write(head.toString("latin1").replace(`Host: 127.0.0.1:${this.#port}`, `Host: ${this.target.host}`), "latin1");
        client.pipe(upstream);
      });
      upstream.pipe(client);
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
