"""A local stack as a child process, with free ports and a temporary data directory."""

import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
import threading
import urllib.error
import urllib.request
from contextlib import contextmanager


class StackError(Exception):
    """The stack did not start, or does not respond."""


class Stack:
    """A running stack, known by its base URL."""

    def __init__(self, base_url):
        self.base_url = base_url

    def environment(self):
        """The environment of every function, by logical id."""
        with urllib.request.urlopen(self.base_url + "/_local/environment", timeout=30) as response:
            return json.load(response)

    def invoke(self, function, event):
        """Invokes a function with an event. Returns its result, or its error as Lambda reports it."""
        request = urllib.request.Request(f"{self.base_url}/_local/functions/{function}", json.dumps(event).encode(), method="POST")
        try:
            with urllib.request.urlopen(request, timeout=120) as response:
                return json.load(response)
        except urllib.error.HTTPError as error:
            return json.load(error)


@contextmanager
def running(binary, template, process_functions_from=None, **variables):
    """Starts a stack and ends it. With a folder of binaries, the functions run as processes."""
    data = tempfile.mkdtemp(prefix="tidemark-stack-")
    own = {"TIDEMARK_ADDR": "127.0.0.1:0", "TIDEMARK_DATA": data, "TIDEMARK_TEMPLATE": str(template), "RUST_LOG": "error"}
    if process_functions_from:
        own |= {"TIDEMARK_PROCESS_FUNCTIONS": "all", "TIDEMARK_PROCESSES": "1", "TIDEMARK_BIN_DIR": str(process_functions_from)}
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "REDIS_", "TIDEMARK_"))}
    child = subprocess.Popen([str(binary)], env=inherited | own | variables, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    errors = []
    reader = threading.Thread(target=lambda: errors.extend(child.stderr), daemon=True)
    reader.start()
    try:
        yield Stack(announced(child, reader, errors))
    finally:
        end(child)
        shutil.rmtree(data, ignore_errors=True)


def end(child, by=signal.SIGTERM, within=30):
    """Ends a child process: with a signal, and by force if it does not end in time."""
    child.send_signal(by)
    try:
        child.wait(within)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()


def announced(child, reader, errors):
    """The base URL, which the stack prints when it accepts requests."""
    for line in child.stdout:
        if found := re.search(r"page and API +(http://\S+)/", line):
            # The rest of the output is not read. It fits into the pipe.
            return found.group(1)
    reader.join(5)
    raise StackError("the local stack did not start: " + "".join(errors).strip())
