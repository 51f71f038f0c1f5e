"""The Lambda Runtime API for one process of a function. It is minimal, so that it does not distort measured times."""

import queue
import socket
import threading
import time


class RuntimeApi:
    """Passes events to the process that knows its `address`, and records the times of its requests and responses."""

    def __init__(self, trace=None):
        """With a trace header, each invocation has it."""
        self.trace = f"Lambda-Runtime-Trace-Id: {trace}\r\n" if trace else ""
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = "127.0.0.1:%d" % self.listener.getsockname()[1]
        self.events, self.responses = queue.Queue(), queue.Queue()
        self.first_asked_at = None
        threading.Thread(target=self.accept, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.listener.close()
        self.events.put(None)

    def response(self, event, timeout=30):
        """Sends an event (bytes) and waits for the response. Returns true if it is not an error, its body, and its time."""
        self.events.put(event)
        return self.responses.get(timeout=timeout)

    def accept(self):
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=self.serve, args=(connection,), daemon=True).start()

    def serve(self, connection):
        """One connection, request after request."""
        with connection, connection.makefile("rb") as stream:
            try:
                while request := stream.readline():
                    headers = dict(line.decode().lower().split(":", 1) for line in iter(stream.readline, b"\r\n"))
                    body = stream.read(int(headers.get("content-length", 0)))
                    path = request.split()[1]
                    if path.endswith(b"/invocation/next"):
                        self.first_asked_at = self.first_asked_at or time.perf_counter()
                        event = self.events.get()
                        if event is None:
                            return
                        head = (
                            "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nLambda-Runtime-Aws-Request-Id: measured\r\n"
                            "Lambda-Runtime-Invoked-Function-Arn: arn:aws:lambda:us-east-1:123456789012:function:measured\r\n"
                            f"{self.trace}Lambda-Runtime-Deadline-Ms: {int((time.time() + 60) * 1000)}\r\nContent-Length: {len(event)}\r\n\r\n"
                        )
                        connection.sendall(head.encode() + event)
                    else:
                        self.responses.put((path.endswith(b"/response"), body, time.perf_counter()))
                        connection.sendall(b"HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n")
            except OSError:
                # The process has ended.
                return
