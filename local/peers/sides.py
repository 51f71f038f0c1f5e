"""The systems that are measured. Each installs and starts what it needs, and makes the requests of each operation.

A request is (method, path, token, body). Users are numbers from 0; the first ones are the authors.
"""

import glob
import json
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import urllib.request
from datetime import datetime, timezone
from pathlib import Path

from client import Failure

HERE = Path(__file__).resolve().parent
PATIENCE_SECONDS = 600
# `make setup` has installed one of them.
REDIS = shutil.which("valkey-server") or shutil.which("redis-server")


def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def run(*command, **more):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, **more)
    if done.returncode:
        lines = (done.stderr.strip() or done.stdout.strip() or "no output").splitlines()
        raise Failure(f"{Path(command[0]).name} {command[1]}: {' '.join(lines[-3:])[:400]}")
    return done.stdout.strip()


def spawn(ends, command, folder, **more):
    """Starts a process, which ends with the script. Its output is in a file."""
    log = ends.enter_context(open(Path(folder) / f"{Path(command[0]).name}.log", "w"))
    process = subprocess.Popen([str(part) for part in command], stderr=log, **{"stdout": log, **more})
    ends.callback(end, process)
    return process


def end(process):
    process.send_signal(signal.SIGINT)
    try:
        process.wait(20)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def until(what, process, holds):
    started = time.monotonic()
    while time.monotonic() - started < PATIENCE_SECONDS:
        if process.poll() is not None:
            raise Failure(f"{what}: the process ended with {process.returncode}")
        try:
            if holds():
                return
        except OSError:
            pass
        time.sleep(0.05)
    raise Failure(f"not in time: {what}")


def accepts(port):
    socket.create_connection(("127.0.0.1", port), 1).close()
    return True


def temporary(ends):
    return Path(ends.enter_context(tempfile.TemporaryDirectory(prefix="tidemark-peers-")))


def version_of_redis():
    return " ".join(run(REDIS, "--version").split()[:3])


def redis(ends, folder):
    """Starts a server with its defaults, but without files. Returns process and port."""
    port = free_port()
    process = spawn(ends, [REDIS, "--bind", "127.0.0.1", "--port", port, "--save", "", "--dir", folder], folder)
    until("Redis", process, lambda: accepts(port))
    return process, port


def postgres(ends, folder):
    """Starts a server in a folder. A crash would lose data: `fsync` is off. Returns process, port and version."""
    run(HERE.parent / "setup.sh", "postgresql")
    programs, port = Path(sorted(glob.glob("/usr/lib/postgresql/*/bin/initdb"))[-1]).parent, free_port()
    # PostgreSQL refuses to run as root.
    other = {"user": "postgres", "group": "postgres", "extra_groups": []} if os.geteuid() == 0 else {}
    database = folder / "database"
    database.mkdir()
    if other:
        folder.chmod(0o711)
        shutil.chown(database, "postgres", "postgres")
    run(programs / "initdb", "--auth=trust", "--username=peers", "--encoding=UTF8", "--locale=C.UTF-8", "-D", database, cwd="/", **other)
    options = {"listen_addresses": "127.0.0.1", "port": port, "unix_socket_directories": "", "fsync": "off"}
    command = [programs / "postgres", "-D", database, *(f"--{name}={value}" for name, value in options.items())]
    process = spawn(ends, command, folder, cwd="/", **other)
    until("PostgreSQL", process, lambda: accepts(port))
    return process, port, run(programs / "postgres", "--version")


class Tidemark:
    name, items = "Tidemark", "items"

    def __init__(self, ends, options):
        folder = temporary(ends)
        self.address = ("127.0.0.1", free_port())
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("TIDEMARK_", "REDIS_"))}
        environment |= {"TIDEMARK_ADDR": "%s:%d" % self.address, "TIDEMARK_DATA": str(folder / "data"), "RUST_LOG": "warn"}
        self.process = spawn(ends, [Path(options.binaries) / "tidemark-local"], folder, env=environment)
        until("the stack", self.process, lambda: self.get("/v1/health")["status"] == "ok")
        self.roots = [self.process.pid]
        commit = subprocess.run(["git", "-C", HERE, "describe", "--always", "--dirty"], capture_output=True, text=True).stdout.strip()
        self.versions = {"commit": commit, "profile": Path(options.binaries).name, "Redis": version_of_redis()}

    def get(self, path):
        with urllib.request.urlopen("http://%s:%d%s" % (*self.address, path), timeout=30) as response:
            return json.load(response)

    def settle(self):
        until("an idle stack", self.process, lambda: self.get("/_local/status")["idle"])

    def profile(self, author):
        return "PUT", "/v1/me/profile", author + 1, {"name": f"Author {author}"}

    def follows(self, user, authors):
        return "POST", "/v1/following", user + 1, {"authors": [str(author + 1) for author in authors]}

    def page(self, user, limit=50):
        return "GET", f"/v1/feed?limit={limit}&include=body", user + 1, None

    def unread(self, user):
        return "GET", "/v1/unread", user + 1, None

    def publish(self, author, text):
        return "POST", "/v1/posts", author + 1, {"title": text[:30], "body": text}

    def like(self, user, post):
        return "PUT", f"/v1/posts/{self.posts[post]['id']}/like", user + 1, None

    def follow(self, user, author):
        return "PUT", f"/v1/following/{author + 1}", user + 1, None

    def unfollow(self, user, author, _response):
        return "DELETE", f"/v1/following/{author + 1}", user + 1, None

    def mark(self, user):
        return "POST", "/v1/reads", user + 1, {"all": True}


class Bluesky:
    name, items = "Bluesky", "feed"

    def __init__(self, ends, options):
        installed, folder = options.target / "bluesky", temporary(ends)
        self.install(installed)
        store, port = redis(ends, folder)
        database, database_port, postgres_version = postgres(ends, folder)
        url = f"postgresql://peers@127.0.0.1:{database_port}/postgres"
        environment = {**os.environ, "DB_POSTGRES_URL": url, "REDIS_HOST": f"127.0.0.1:{port}", "NODE_ENV": "production"}
        environment |= {"LOG_ENABLED": "false", "TMPDIR": str(folder)}
        shutil.copy(HERE / "bluesky.mjs", installed)
        command = [installed / "node/node_modules/node/bin/node", "bluesky.mjs", options.users]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        self.process = spawn(ends, command, folder, cwd=installed, env=environment, **pipes)
        self.log = folder / "node.log"
        ready = self.line()
        self.accounts, self.roots = ready["accounts"], [self.process.pid, database.pid, store.pid]
        self.address, self.appview = (("localhost", int(ready[name].rsplit(":", 1)[1])) for name in ("pds", "appview"))
        packages = json.loads((HERE / "package.json").read_text())["dependencies"]
        self.versions = {**packages, "node": ready["node"], "PostgreSQL": postgres_version, "Redis": version_of_redis()}

    @staticmethod
    def install(folder):
        wanted, installed = HERE / "package.json", folder / "installed.json"
        if installed.exists() and installed.read_text() == wanted.read_text():
            return
        if not shutil.which("npm"):
            raise Failure("npm is missing")
        print(f"== npm install (into {folder})", flush=True)
        packages = json.loads(wanted.read_text())["dependencies"]
        # Node comes first, because one package is compiled for it.
        parts = {"node": {"node": packages.pop("node")}, ".": packages}
        environment = {**os.environ, "PATH": f"{folder}/node/node_modules/node/bin:{os.environ['PATH']}"}
        for part, dependencies in parts.items():
            (folder / part).mkdir(parents=True, exist_ok=True)
            (folder / part / "package.json").write_text(json.dumps({"private": True, "dependencies": dependencies}))
            run("npm", "install", "--prefix", folder / part, "--no-audit", "--no-fund", "--no-package-lock", "--loglevel=error", env=environment)
            headers = next((folder / "node/node_modules/node/node_modules").glob("node-*/include"))
            environment["npm_config_nodedir"] = str(headers.parent)
        shutil.copy(wanted, installed)

    def line(self):
        line = self.process.stdout.readline()
        if not line:
            raise Failure(f"the network ended: {' '.join(self.log.read_text().split())[-400:]}")
        return json.loads(line)

    def settle(self):
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        self.line()

    def record(self, user, collection, **fields):
        record = {"$type": collection, "createdAt": datetime.now(timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z"), **fields}
        return {"repo": self.accounts[user]["did"], "collection": collection, "record": record}

    def call(self, user, method, body):
        return "POST", f"/xrpc/{method}", self.accounts[user]["token"], body

    def profile(self, author):
        record = self.record(author, "app.bsky.actor.profile", displayName=f"Author {author}")
        return self.call(author, "com.atproto.repo.putRecord", {**record, "rkey": "self"})

    def follows(self, user, authors):
        records = [self.record(user, "app.bsky.graph.follow", subject=self.accounts[author]["did"]) for author in authors]
        writes = [{"$type": "com.atproto.repo.applyWrites#create", "collection": one["collection"], "value": one["record"]} for one in records]
        return self.call(user, "com.atproto.repo.applyWrites", {"repo": self.accounts[user]["did"], "writes": writes})

    def page(self, user, limit=50):
        return "GET", f"/xrpc/app.bsky.feed.getTimeline?limit={limit}", self.accounts[user]["token"], None

    def page_of_appview(self, user):
        return "GET", "/xrpc/app.bsky.feed.getTimeline?limit=50", self.accounts[user]["service"], None

    def unread(self, user):
        return "GET", "/xrpc/app.bsky.notification.getUnreadCount", self.accounts[user]["token"], None

    def publish(self, author, text):
        return self.call(author, "com.atproto.repo.createRecord", self.record(author, "app.bsky.feed.post", text=text))

    def like(self, user, post):
        subject = {name: self.posts[post][name] for name in ("uri", "cid")}
        return self.call(user, "com.atproto.repo.createRecord", self.record(user, "app.bsky.feed.like", subject=subject))

    def follow(self, user, author):
        subject = self.accounts[author]["did"]
        return self.call(user, "com.atproto.repo.createRecord", self.record(user, "app.bsky.graph.follow", subject=subject))

    def unfollow(self, user, _author, response):
        key = json.loads(response)["uri"].rsplit("/", 1)[1]
        body = {"repo": self.accounts[user]["did"], "collection": "app.bsky.graph.follow", "rkey": key}
        return self.call(user, "com.atproto.repo.deleteRecord", body)

    def mark(self, user):
        seen = self.record(user, "x")["record"]["createdAt"]
        return self.call(user, "app.bsky.notification.updateSeen", {"seenAt": seen})


class StreamFramework:
    name, items, server = "stream-framework", "items", "framework_server.py"

    def __init__(self, ends, options):
        python, folder = self.install(options.target / "stream-framework"), temporary(ends)
        store, port = redis(ends, folder)
        self.address = ("127.0.0.1", free_port())
        self.process = spawn(ends, [python, HERE / self.server, self.address[1], port], folder)
        until("the server", self.process, lambda: accepts(self.address[1]))
        self.roots = [self.process.pid, store.pid]
        packages = dict(line.split("==") for line in (HERE / "requirements.txt").read_text().split())
        self.versions = {**packages, "Python": run(python, "--version"), "Redis": version_of_redis()}

    @staticmethod
    def install(folder):
        found = [*glob.glob(os.path.expanduser("~/.pyenv/versions/3.6.*/bin/python3")), shutil.which("python3.6")]
        if not any(found):
            raise Failure("it needs Python 3.6, which is not installed: `async` in its feed_managers/base.py is invalid syntax since Python 3.7")
        venv, wanted = folder / "venv", (HERE / "requirements.txt").read_text()
        if not (folder / "installed.txt").exists() or (folder / "installed.txt").read_text() != wanted:
            print(f"== pip install (into {venv})", flush=True)
            run(found[0], "-m", "venv", "--clear", venv)
            run(venv / "bin/pip", "install", "--quiet", "--disable-pip-version-check", "-r", HERE / "requirements.txt")
            (folder / "installed.txt").write_text(wanted)
        return venv / "bin/python"

    def settle(self):
        """Nothing is left to do after a response."""

    def profile(self, author):
        return "GET", "/page/1", author + 1, None

    def follows(self, user, authors):
        return "POST", "/follow", user + 1, {"authors": [author + 1 for author in authors]}

    def page(self, user, limit=50):
        return "GET", f"/page/{limit}", user + 1, None

    def publish(self, author, text):
        return "POST", "/publish", author + 1, {"text": text}

    def follow(self, user, author):
        return self.follows(user, [author])

    def unfollow(self, user, author, _response):
        return "POST", "/unfollow", user + 1, {"author": author + 1}


class SourceDesigns(StreamFramework):
    """It uses the framework's Python and its client of Redis."""

    name, server = "source designs", "source_server.py"

    def unread(self, user):
        return "GET", "/unread", user + 1, None
