"""A proxy in front of the stack that spoils requests."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from urllib.parse import urlsplit

import httpx


@dataclass
class Fault:
    status: int
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""


@dataclass
class Seen:
    method: str
    path: str
    key: str | None
    at: float


#: The stack handles the request, and its response is dropped.
LOST = "lost"
#: Nothing happens to the request.
PASSED = "passed"


class Tunnel:
    """A WebSocket through the proxy."""

    def __init__(self, target: str, request: BaseHTTPRequestHandler) -> None:
        address = urlsplit(target)
        self._client = request.connection
        self._stack = socket.create_connection((address.hostname, address.port or 80))
        lines = [request.requestline, *(f"{name}: {value}" for name, value in request.headers.items()), "", ""]
        self._stack.sendall("\r\n".join(lines).encode())
        self._received = b""
        self._silent = False
        self.closed = threading.Event()

    def run(self) -> None:
        """Returns when the connection has ended."""
        back = threading.Thread(target=self._pass_back)
        back.start()
        with contextlib.suppress(OSError):
            while data := self._client.recv(65_536):
                self._stack.sendall(data)
        self.cut()
        back.join()
        self._stack.close()
        self.closed.set()

    def _pass_back(self) -> None:
        with contextlib.suppress(OSError):
            while data := self._stack.recv(65_536):
                self._received += data
                if not self._silent:
                    self._client.sendall(data)
        self.cut()

    def cut(self) -> None:
        """Ends the connection without a word."""
        for end in (self._client, self._stack):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def silence(self) -> None:
        """Leaves the connection open and passes nothing on to the client."""
        self._silent = True

    def replay(self) -> None:
        """Passes everything that the stack has sent on to the client once more."""
        self._client.sendall(self._received.partition(b"\r\n\r\n")[2])


class Proxy:
    """It spoils requests in the given order and lets all later ones pass."""

    def __init__(self, target: str, faults: list[Fault | str]) -> None:
        self.target, self.faults = target, list(faults)
        self.seen: list[Seen] = []
        self.tunnels: list[Tunnel] = []
        self._http = httpx.Client()
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do(self) -> None:
                proxy.handle(self)

            do_GET = do_PUT = do_POST = do_DELETE = do

            def log_message(self, format: str, *args: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def handle(self, request: BaseHTTPRequestHandler) -> None:
        self.seen.append(Seen(request.command, request.path, request.headers.get("Idempotency-Key"), time.monotonic()))
        body = request.rfile.read(int(request.headers.get("Content-Length", 0)))
        fault = self.faults.pop(0) if self.faults else None
        if isinstance(fault, Fault):
            response = httpx.Response(fault.status, headers=fault.headers, content=fault.body)
        elif "Upgrade" in request.headers:
            request.close_connection = True
            tunnel = Tunnel(self.target, request)
            self.tunnels.append(tunnel)
            tunnel.run()
            return
        else:
            response = self._http.request(
                request.command, self.target + request.path, headers=dict(request.headers), content=body
            )
        if fault == LOST:
            request.close_connection = True
            return
        request.send_response(response.status_code)
        for name, value in response.headers.items():
            if name not in ("content-length", "transfer-encoding", "connection"):
                request.send_header(name, value)
        if response.status_code != 204:
            request.send_header("Content-Length", str(len(response.content)))
        request.end_headers()
        request.wfile.write(response.content)

    def __enter__(self) -> Proxy:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for tunnel in self.tunnels:
            tunnel.cut()
        self._server.shutdown()
        self._server.server_close()
