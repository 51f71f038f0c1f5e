import { createServer, request as httpRequest, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";

/** What happens to the next request. `lost`: the stack handles it, and its response is dropped. */
export type Fault = { status: number; headers?: Record<string, string>; body?: string } | "lost";

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
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const close = () => {
    server.closeAllConnections();
    server.close();
  };
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, seen, close };
}

function forward(target: string, request: IncomingMessage, response: ServerResponse, lost: boolean): void {
  const { method, headers } = request;
  const upstream = httpRequest(target + request.url, { method, headers }, (answer) => {
    if (lost) {
      answer.resume().on("end", () => response.destroy());
    } else {
      response.writeHead(answer.statusCode!, answer.headers);
      answer.pipe(response);
    }
  });
  request.pipe(upstream);
}
