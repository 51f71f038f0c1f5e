import { createServer, request as httpRequest, type IncomingMessage, type ServerResponse } from "node:http";
import { connect, type AddressInfo, type Socket } from "node:net";
import type { Duplex } from "node:stream";

/** What happens to the next request. `lost`: the stack handles it, and its response is dropped. `passed`: nothing. */
export type Fault = { status: number; headers?: Record<string, string>; body?: string } | "lost" | "passed";

export interface Seen {
  method: string;
  path: string;
  key: string | undefined;
  at: number;
}

/** A proxy in front of the stack that spoils requests in the given order. It lets all later ones pass. */
export async function proxy(target: string, faults: Fault[]) {
  const seen: Seen[] = [];
  const server = createServer((request, response) => {
    const key = request.headers["idempotency-key"] as string | undefined;
    seen.push({ method: request.method!, path: request.url!, key, at: performance.now() });
    const fault = faults.shift();
    if (typeof fault === "object") {
      request.resume();
      response.writeHead(fault.status, fault.headers).end(fault.body);
    } else {
      forward(target, request, response, fault === "lost");
    }
  });
  const tunnels = new Set<Tunnel>();
  server.on("upgrade", (request, client, head) => {
    seen.push({ method: request.method!, path: request.url!, key: undefined, at: performance.now() });
    const fault = faults.shift();
    if (typeof fault === "object") return client.end(`HTTP/1.1 ${fault.status} Spoiled\r\nContent-Length: 0\r\n\r\n`);
    const tunnel = new Tunnel(target, request, client, head);
    tunnels.add(tunnel);
    client.on("close", () => tunnels.delete(tunnel));
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const close = () => {
    for (const tunnel of tunnels) tunnel.cut();
    server.closeAllConnections();
    server.close();
  };
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, seen, tunnels, close };
}

function forward(target: string, request: IncomingMessage, response: ServerResponse, lost: boolean): void {
  const { method, headers } = request;
  const upstream = httpRequest(target + request.url, { method, headers }, (reply) => {
    if (lost) {
      reply.resume().on("end", () => response.destroy());
    } else {
      response.writeHead(reply.statusCode!, reply.headers);
      reply.pipe(response);
    }
  });
  request.pipe(upstream);
}

/** A WebSocket through the proxy. */
class Tunnel {
  readonly #client: Duplex;
  readonly #stack: Socket;
  readonly #received: Buffer[] = [];

  constructor(target: string, { method, url, rawHeaders }: IncomingMessage, client: Duplex, head: Buffer) {
    const { port, hostname } = new URL(target);
    this.#client = client;
    this.#stack = connect(Number(port), hostname);
    const lines = rawHeaders.map((text, index) => (index % 2 ? `${text}\r\n` : `${text}: `)).join("");
    this.#stack.write(`${method} ${url} HTTP/1.1\r\n${lines}\r\n`);
    this.#stack.write(head);
    this.#stack.on("data", (data) => this.#received.push(data));
    this.#stack.on("error", () => {}).on("close", () => client.destroy()).pipe(client);
    client.on("error", () => {}).on("close", () => this.#stack.destroy()).pipe(this.#stack);
  }

  /** Ends the connection without a word. */
  cut(): void {
    this.#client.destroy();
  }

  /** Leaves the connection open and passes nothing on to the client. */
  silence(): void {
    this.#stack.unpipe(this.#client).resume();
  }

  /** Passes everything that the stack has sent on to the client once more. */
  replay(): void {
    const received = Buffer.concat(this.#received);
    this.#client.write(received.subarray(received.indexOf("\r\n\r\n") + 4));
  }
}
