"""Tests the API against openapi.yaml: the document itself, then a running stack with requests generated from it."""

import argparse
import json
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections import Counter
from pathlib import Path

import jsonschema_rs
import yaml

HERE = Path(__file__).parent
REPOSITORY = HERE.parent.parent
LOG = Path(sys.executable).parent.parent.parent / "stack.log"
METHODS = ("get", "put", "post", "delete")

# The caller of each run, and the share of the examples in the run. The last run is made after Redis has ended.
CALLERS = {
    "an administrator": ("900 notices:write", 1.0),
    "a reader": ("1", 0.5),
    "the largest id": (str(2**64 - 1), 0.25),
}
WITHOUT_REDIS = {"without Redis": ("1 notices:write", 0.25)}


# The lists with pages. Each has an example path that has several pages after seeding.
LISTS = {
    "/v1/feed": "/v1/feed?limit=2",
    "/v1/authors/{author}/posts": "/v1/authors/2/posts?limit=2",
    "/v1/me/likes": "/v1/me/likes?limit=1",
    "/v1/me/favorites": "/v1/me/favorites?limit=1",
    "/v1/users/{user}/followers": "/v1/users/2/followers?limit=1",
    "/v1/users/{user}/following": "/v1/users/2/following?limit=1",
    "/v1/follow-requests": "/v1/follow-requests?limit=1",
    "/v1/posts/{post}/likes": "/v1/posts/1-1/likes?limit=1",
    "/v1/posts/{post}/favorites": "/v1/posts/1-1/favorites?limit=1",
    "/v1/posts/{post}/reposts": "/v1/posts/1-1/reposts?limit=1",
    "/v1/posts/{post}/comments": "/v1/posts/1-1/comments?limit=1",
    "/v1/inbox": "/v1/inbox?limit=1",
    "/v1/notices": "/v1/notices?platform=1&limit=2",
    "/v1/mutes": "/v1/mutes?limit=1",
    "/v1/blocks": "/v1/blocks?limit=1",
    "/v1/lists": "/v1/lists?limit=1",
    "/v1/lists/{list}/authors": "/v1/lists/1-1/authors?limit=1",
    "/v1/me/export": "/v1/me/export?limit=1",
}


def document():
    return yaml.safe_load((REPOSITORY / "openapi.yaml").read_text())


def resolved(root, node):
    """The node, or the target of its `$ref`."""
    while isinstance(node, dict) and "$ref" in node:
        target = root
        for part in node["$ref"].removeprefix("#/").split("/"):
            target = target[part.replace("~1", "/")]
        node = target
    return node


def nodes(node):
    """Every object in a tree."""
    if isinstance(node, dict):
        yield node
    for child in node.values() if isinstance(node, dict) else node if isinstance(node, list) else ():
        yield from nodes(child)


def check_document(root):
    """Checks that every reference resolves, every definition is used and every example is valid. Returns the number of examples."""
    wrong, examples, used = [], 0, set()
    for node in nodes(root):
        if "$ref" in node:
            used.add(node["$ref"])
            resolved(root, node)
    for kind, members in root["components"].items():
        for name in members:
            if kind != "securitySchemes" and f"#/components/{kind}/{name}" not in used:
                wrong.append(f"components/{kind}/{name} is not used")
    components = {"components": root["components"]}
    for node in nodes(root):
        schema = node.get("schema")
        pairs = [(schema, node["example"])] if schema and "example" in node else []
        pairs += [(node, example) for example in node.get("examples", []) if isinstance(node["examples"], list)]
        for schema, example in pairs:
            examples += 1
            validator = jsonschema_rs.Draft202012Validator({**components, **schema}, validate_formats=True)
            wrong += [f"{example!r}: {error.message}" for error in validator.iter_errors(example)]
    if wrong:
        sys.exit("openapi.yaml: " + "\n  ".join(wrong))
    return examples


def closed(root):
    """The document without additional fields in responses. Clients must accept new fields, but here each field must be documented."""
    given, answered = set(), set()

    def reach(node, names):
        for inner in nodes(node):
            name = inner.get("$ref")
            if name and name not in names:
                names.add(name)
                reach(resolved(root, inner), names)

    for path in root["paths"].values():
        for method in METHODS:
            operation = path.get(method, {})
            reach(operation.get("requestBody"), given)
            reach(operation.get("responses"), answered)
    for name in answered - given:
        for node in nodes(resolved(root, {"$ref": name})):
            if node.get("type") == "object" and "properties" in node:
                node["additionalProperties"] = False
    return root


class Stack:
    """The stack at TIDEMARK_ADDR, or a new one on free ports in a temporary folder."""

    def __init__(self, binary):
        self.processes, self.data = {}, None
        if address := os.environ.get("TIDEMARK_ADDR"):
            self.url = f"http://{address}"
            return
        self.data = tempfile.mkdtemp(prefix="tidemark-api-check-", dir="/dev/shm" if Path("/dev/shm").is_dir() else None)
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = str(free.getsockname()[1])
        server = shutil.which("valkey-server") or "redis-server"
        store = [server, "--bind", "127.0.0.1", "--port", port, "--save", "", "--dir", self.data, "--logfile", "redis.log"]
        self.processes["redis"] = subprocess.Popen(store, stdout=subprocess.DEVNULL)
        self.until_it_listens("redis", int(port))
        environment = {
            **os.environ,
            "TIDEMARK_ADDR": "127.0.0.1:0",
            "TIDEMARK_DATA": f"{self.data}/stack",
            "REDIS_URL": f"redis://127.0.0.1:{port}",
            "RUST_LOG": "info,dynoxide=off",
        }
        command = [str(binary), "--template", str(REPOSITORY / "template.yaml")]
        with LOG.open("w") as log:
            process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=log, text=True)
        self.processes["stack"] = process
        for line in process.stdout:
            if found := re.search(r"page and API\s+(http://\S+?)/$", line.rstrip()):
                self.url = found[1]
                return
        self.stop()
        sys.exit(f"{binary} did not start")

    def until_it_listens(self, name, port):
        while True:
            try:
                return socket.create_connection(("127.0.0.1", port)).close()
            except ConnectionRefusedError:
                if self.processes[name].poll() is not None:
                    self.stop()
                    sys.exit(f"{name} ended")
                time.sleep(0.02)

    def end(self, name):
        process = self.processes.pop(name)
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=60)

    def stop(self):
        for name in reversed(list(self.processes)):
            self.end(name)
        if self.data:
            shutil.rmtree(self.data)


class Caller:
    def __init__(self, url, token):
        self.url, self.token = url, token

    def __call__(self, method, path, body=None):
        request = urllib.request.Request(self.url + path, method=method, data=json.dumps(body).encode() if body else None)
        request.add_header("Authorization", f"Bearer {self.token}")
        with urllib.request.urlopen(request, timeout=30) as response:
            return json.loads(response.read() or b"null"), response.headers


def seed(url):
    """Makes users who follow each other, posts and notices. Returns them as the tester's dictionaries, with cursors of the lists."""
    admin = Caller(url, CALLERS["an administrator"][0])
    users = [token.split()[0] for token, _ in CALLERS.values()] + ["2", "3"]
    calls = {user: Caller(url, user) for user in users}
    posts, tags = [], []
    for user, call in calls.items():
        for other in users:
            if other != user:
                call("PUT", f"/v1/following/{other}")
    for user, call in calls.items():
        posts += [call("POST", "/v1/posts", {"title": f"Post {number}", "body": "Text"})[0]["id"] for number in range(25)]
    for number in range(25):
        admin("POST", "/v1/notices", {"platforms": [1, 2, 65535], "title": f"Notice {number}"})
    for user, call in calls.items():
        for post in [*posts[:3], "1-1"]:
            call("PUT", f"/v1/posts/{post}/like")
            call("PUT", f"/v1/posts/{post}/favorite")
        call("PUT", "/v1/posts/1-1/repost")
        call("POST", "/v1/posts/1-1/comments", {"text": "Comment"})
        call("PUT", f"/v1/posts/{posts[0]}/read")
        for path in ("/v1/feed", "/v1/unread", f"/v1/unread/{users[0]}", "/v1/notices/unread?platform=1"):
            tags.append(call("GET", path)[1]["ETag"])
    calls["1"]("PUT", "/v1/me/privacy", {"private": True})
    for number in range(3):
        Caller(url, str(6001 + number))("PUT", "/v1/following/1")
        calls["1"]("PUT", f"/v1/mutes/{4001 + number}")
        calls["1"]("PUT", f"/v1/blocks/{5001 + number}")
        calls["1"]("POST", "/v1/lists", {"name": f"List {number}"})
        calls["1"]("PUT", f"/v1/lists/1-1/authors/{[user for user in users if user != '1'][number]}")
    # The requests stay.
    calls["1"]("PUT", "/v1/me/privacy", {"private": False})
    notices = [f"{platform}-{number}" for platform in (1, 2, 65535) for number in range(1, 26)]
    kinds = {"users": users, "posts": posts, "notices": notices, "platforms": [1, 2, 65535]}
    dictionaries = {**kinds, "tags": [*tags, "*"], "keys": ["key"]}
    return dictionaries, {path: cursors(calls["1"], example) for path, example in LISTS.items()}


def cursors(call, path):
    """The first cursors of a list, by parameter. For the feed, waits until its posts are delivered."""
    given, since, deadline = [], [], time.monotonic() + 60
    while len(given) < 2:
        page, _ = call("GET", path + "".join(f"&cursor={cursor}" for cursor in given[-1:]))
        given += [page["next_cursor"]] if page["next_cursor"] else []
        since += [page["first_cursor"]] if "first_cursor" in page else []
        if time.monotonic() > deadline:
            sys.exit(f"{path} has no second page")
    return {"cursor": given, "since": since}


def given_out(root, known):
    """The document in which each list accepts only the cursors that it has returned."""
    for path, values in known.items():
        parameters = root["paths"][path]["get"]["parameters"]
        for place, parameter in enumerate(parameters):
            parameter = resolved(root, parameter)
            if parameter["name"] in values:
                parameters[place] = {**parameter, "schema": {"type": "string", "enum": values[parameter["name"]]}}
    return root


def configuration(dictionaries):
    """schemathesis.toml with the seeded data. JSON lists of strings and numbers are valid TOML."""
    text = (HERE / "schemathesis.toml").read_text()
    for name, values in dictionaries.items():
        text += f"\n[dictionaries.{name}]\nvalues = {json.dumps(values)}\n"
    return text


def run(work, url, caller, token, examples, seed_number, phases):
    """One run of the tester. Returns the number of requests by status, and true if it found no failure."""
    report = work / "report.ndjson"
    report.unlink(missing_ok=True)
    tester = Path(sys.executable).parent / "schemathesis"
    command = [
        *[str(tester), "--config-file", "schemathesis.toml", "run", "openapi.yaml", "--url", url],
        *["--header", f"Authorization: Bearer {token}", "--phases", phases, "--max-examples", str(examples)],
        *["--seed", str(seed_number), "--report", "ndjson", "--report-ndjson-path", str(report), "--no-color"],
    ]
    found = subprocess.run(command, cwd=work, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    statuses = Counter()
    for line in report.read_text().splitlines() if report.exists() else ():
        for status in re.findall(r'"status_code":\s*(\d{3})', line):
            statuses[status] += 1
    if found.returncode != 0:
        print("\n".join(line[:400] for line in found.stdout.splitlines()))
    return statuses, found.returncode == 0


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--binary", type=Path, default=REPOSITORY / "target/debug/tidemark-local", help="the stack to start")
    parser.add_argument("--examples", type=int, default=40, help="generated requests of each operation in each phase")
    parser.add_argument("--phases", default="examples,coverage,fuzzing,stateful")
    parser.add_argument("--short", action="store_true", help="only the runs of an administrator and without Redis")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(2**32))
    arguments = parser.parse_args()

    root = document()
    operations = sum(method in path for path in root["paths"].values() for method in METHODS)
    print(f"openapi.yaml: {operations} operations, {check_document(root)} examples valid")
    print(f"seed {arguments.seed}", flush=True)
    stack, passed, total = Stack(arguments.binary), True, Counter()
    work = Path(tempfile.mkdtemp(prefix="tidemark-api-check-"))
    try:
        with urllib.request.urlopen(f"{stack.url}/_local/openapi.yaml", timeout=30) as served:
            if yaml.safe_load(served.read()) != root:
                sys.exit("the stack was built with another openapi.yaml")
        dictionaries, known = seed(stack.url)
        (work / "openapi.yaml").write_text(json.dumps(given_out(closed(root), known)))
        (work / "schemathesis.toml").write_text(configuration(dictionaries))
        shutil.copy(HERE / "hooks.py", work)
        callers = dict(list(CALLERS.items())[: 1 if arguments.short else None]) | (WITHOUT_REDIS if stack.processes else {})
        for caller, (token, share) in callers.items():
            if caller in WITHOUT_REDIS:
                stack.end("redis")
                if Caller(stack.url, token)("GET", "/v1/feed")[1]["Degraded"] != "redis":
                    sys.exit("the feed is not degraded although Redis is unavailable")
            since = time.monotonic()
            examples = max(1, int(arguments.examples * share))
            statuses, good = run(work, stack.url, caller, token, examples, arguments.seed, arguments.phases)
            total, passed = total + statuses, passed and good
            told = ", ".join(f"{status} {count}" for status, count in sorted(statuses.items()))
            print(f"{caller}: {sum(statuses.values())} requests in {time.monotonic() - since:.0f} s: {told}", flush=True)
    finally:
        shutil.rmtree(work)
        stack.stop()
    log = f", the stack's log is {LOG}" if stack.data else ""
    print(f"{sum(total.values())} requests, {'nothing found' if passed else f'FAILURES ABOVE{log}'}; seed {arguments.seed}")
    sys.exit(not passed)


if __name__ == "__main__":
    main()
