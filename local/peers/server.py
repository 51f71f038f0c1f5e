"""What the servers that this folder brings for a library or a design have in common. It runs on Python 3.6."""

import json
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer
from socketserver import ThreadingMixIn


class Handler(BaseHTTPRequestHandler):
    """A request's first path segment is the method that responds to it, which gets the caller and the body."""

    protocol_version, disable_nagle_algorithm, wbufsize = "HTTP/1.1", True, -1

    def log_message(self, *_):
        pass

    def respond(self):
        user = int(self.headers["Authorization"].split()[1])
        body = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)) or "{}")
        response = getattr(self, self.path.strip("/").split("/")[0])(user, body)
        text = json.dumps(response).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    do_GET = do_POST = respond


class Server(ThreadingMixIn, HTTPServer):
    daemon_threads = True


def serve(handler):
    Server(("127.0.0.1", int(sys.argv[1])), handler).serve_forever()
