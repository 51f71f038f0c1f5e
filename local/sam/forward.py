"""Forwards connections from an address that containers can reach to the loopback address, on which a local stack listens."""

import socket
import threading
from contextlib import ExitStack, contextmanager
from urllib.parse import urlsplit


def loopback_ports(values):
    """All ports of 127.0.0.1 in URLs among the values."""
    urls = (urlsplit(value) for value in values if "://127.0.0.1:" in value)
    return {url.port for url in urls}


@contextmanager
def forwarding(address, ports):
    """Forwards each port of `address` to the loopback port that belongs to it."""
    with ExitStack() as listeners:
        for port, target in ports.items():
            listener = listeners.enter_context(socket.create_server((address, port)))
            threading.Thread(target=accept, args=(listener, target), daemon=True).start()
        yield


def accept(listener, target):
    while True:
        try:
            client, _ = listener.accept()
        except OSError:
            return
        try:
            server = socket.create_connection(("127.0.0.1", target))
        except OSError:
            client.close()
            continue
        for source, sink in [(client, server), (server, client)]:
            threading.Thread(target=copy, args=(source, sink), daemon=True).start()


def copy(source, sink):
    """Copies data until one side ends, then closes both."""
    try:
        while data := source.recv(65536):
            sink.sendall(data)
    except OSError:
        pass
    for end in (source, sink):
        try:
            end.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
