"""`make traces`: draws the calls of one publish and of one first page, as X-Ray would show them.

Three functions run as processes with a Lambda Runtime API of their own, on the data of a local stack. This program plays Lambda: it gives
them events and trace headers, passes the messages of the queue on, and is the daemon that collects their subsegments.
"""

import argparse
import json
import secrets
import socket
import subprocess
import threading
import time
import urllib.request
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from xml.sax.saxutils import escape

import stack
from bundle import TEMPLATE
from runtime_api import RuntimeApi
from samples import call

ROOT = Path(__file__).resolve().parents[2]
AUTHOR = 2
COLOURS = {"DynamoDB": "#2563eb", "SQS": "#d97706", "Redis": "#dc2626"}
WIDTH, LEFT, LANE, WITHIN = 960, 110, 12, 60


class Daemon:
    """Collects the documents that are sent to its `address`."""

    def __init__(self):
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.bind(("127.0.0.1", 0))
        self.address = "127.0.0.1:%d" % self.socket.getsockname()[1]
        self.documents = []
        threading.Thread(target=self.collect, daemon=True).start()

    def collect(self):
        while True:
            _head, document = self.socket.recv(65_536).split(b"\n", 1)
            self.documents.append(json.loads(document))


@dataclass
class Invocation:
    """One invocation, and its calls."""

    title: str
    started: float
    ended: float
    calls: list = field(default_factory=list)


class Function:
    """A process of a function, which has started and waits for its first event."""

    def __init__(self, name, binaries, environment, daemon):
        self.name, self.daemon, self.parent = name, daemon, secrets.token_hex(8)
        trace = f"Root=1-{int(time.time()):08x}-{secrets.token_hex(12)};Parent={self.parent};Sampled=1"
        self.api = RuntimeApi(trace)
        own = {"AWS_LAMBDA_RUNTIME_API": self.api.address, "AWS_XRAY_DAEMON_ADDRESS": daemon.address, "TRACING": "true"}
        self.process = subprocess.Popen([binaries / name], env=environment | own, stdout=subprocess.DEVNULL)
        until(f"{name} asks for an event", lambda: self.api.first_asked_at)

    def invoke(self, title, event):
        """Invokes the function. Returns the invocation and the result."""
        known = len(self.daemon.documents)
        started = time.time()
        right, body, _at = self.api.response(json.dumps(event).encode())
        invocation = Invocation(title, started, time.time())
        if not right:
            raise SystemExit(f"{self.name}: {body}")
        # A datagram is sent before the response, and may be read a moment later.
        time.sleep(0.2)
        invocation.calls = [one for one in self.daemon.documents[known:] if one["parent_id"] == self.parent]
        return invocation, json.loads(body)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()


def until(what, holds):
    since = time.monotonic()
    while not (found := holds()):
        if time.monotonic() - since > WITHIN:
            raise SystemExit(f"not in time: {what}")
        time.sleep(0.01)
    return found


def sample(name):
    return json.loads((ROOT / "events" / f"{name}.json").read_text(encoding="utf-8"))


def request(name, user):
    """A sample event of the API, of this user."""
    event = sample(name)
    event["requestContext"]["authorizer"]["jwt"]["claims"]["sub"] = str(user)
    return event


def sqs(environment, operation, **arguments):
    """Calls the stack's SQS about the queue of fan-out."""
    body = json.dumps(arguments | {"QueueUrl": environment["FAN_OUT_QUEUE_URL"]}).encode()
    headers = {"X-Amz-Target": f"AmazonSQS.{operation}", "Content-Type": "application/x-amz-json-1.0"}
    with urllib.request.urlopen(urllib.request.Request(environment["AWS_ENDPOINT_URL_SQS"], body, headers), timeout=30) as response:
        return json.loads(response.read() or b"{}")


def status(running):
    with urllib.request.urlopen(running.base_url + "/_local/status", timeout=30) as response:
        return json.load(response)


def follow(running, followers):
    """Lets these users follow the author and read their feeds, so that each has a view."""

    def one(user):
        call(running.base_url, user, "PUT", f"/v1/following/{AUTHOR}")
        call(running.base_url, user, "GET", "/v1/feed")

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(one, followers))
    until("the projector is done", lambda: status(running)["idle"])


def trace(running, binaries, followers):
    """The invocations of one publish, its delivery and a first page."""
    users = range(1_001, 1_001 + followers)
    follow(running, users)
    call(running.base_url, 0, "POST", "/_local/sources/fan-out/pause")
    environments = {one["AWS_LAMBDA_FUNCTION_NAME"]: one for one in running.environment().values()}
    daemon = Daemon()
    with ExitStack() as processes:
        publish, fan_out, read_feed = (
            processes.enter_context(Function(name, binaries, environments[name], daemon)) for name in ("publish", "fan-out", "read-feed")
        )
        published, response = publish.invoke("publish: POST /v1/posts", request("publish/publish", AUTHOR))
        if response["statusCode"] != 201:
            raise SystemExit(f"publish: {response}")
        found, shape = [published], sample("fan-out/batch")
        messages = sqs(environments["fan-out"], "ReceiveMessage", MaxNumberOfMessages=3, WaitTimeSeconds=5)["Messages"]
        records = [shape["Records"][0] | {"messageId": one["MessageId"], "body": one["Body"]} for one in messages]
        delivered, response = fan_out.invoke(f"fan-out: {followers:,} followers in {len(records)} pages", {"Records": records})
        if response["batchItemFailures"]:
            raise SystemExit(f"fan-out: {response}")
        page, response = read_feed.invoke("read-feed: GET /v1/feed, the first page", request("read-feed/feed", users[0]))
        if response["statusCode"] != 200 or not json.loads(response["body"])["items"]:
            raise SystemExit(f"read-feed: {response}")
        for message in messages:
            sqs(environments["fan-out"], "DeleteMessage", ReceiptHandle=message["ReceiptHandle"])
        return [*found, delivered, page]


def lanes(calls):
    """Calls of one service in as few lines as hold them without an overlap."""
    lines = []
    for one in sorted(calls, key=lambda one: one["start_time"]):
        free = next((line for line in lines if line[-1]["end_time"] <= one["start_time"]), None)
        if free is None:
            lines.append([one])
        else:
            free.append(one)
    return lines


def operation(one):
    return one.get("aws", {}).get("operation") or one["metadata"]["redis"]["operation"]


def picture(invocations):
    """The invocations as an SVG, each with a scale of its own."""
    parts, y = [], 20
    for invocation in invocations:
        total = invocation.ended - invocation.started

        def x(at, start=invocation.started, total=total):
            return LEFT + (WIDTH - LEFT - 20) * (at - start) / total

        parts.append(f'<text x="10" y="{y}" font-weight="bold">{escape(invocation.title)}: {1000 * total:.1f} ms</text>')
        top, y = y + 8, y + 14
        for service, colour in COLOURS.items():
            calls = [one for one in invocation.calls if one["name"] == service]
            for number, line in enumerate(lanes(calls)):
                if number == 0:
                    parts.append(f'<text x="10" y="{y + LANE - 2}">{service} × {len(calls)}</text>')
                for one in line:
                    left, right = x(one["start_time"]), x(one["end_time"])
                    title = f"{service} {operation(one)}, {1000 * (one['end_time'] - one['start_time']):.2f} ms"
                    bar = f'<rect x="{left:.1f}" y="{y}" width="{max(right - left, 0.8):.1f}" height="{LANE - 2}" fill="{colour}">'
                    parts.append(f"{bar}<title>{escape(title)}</title></rect>")
                y += LANE
        for quarter in range(5):
            at = invocation.started + total * quarter / 4
            parts.append(f'<line x1="{x(at):.1f}" x2="{x(at):.1f}" y1="{top}" y2="{y}" stroke="#9ca3af" stroke-width="0.5"/>')
            parts.append(f'<text x="{x(at):.1f}" y="{y + 11}" text-anchor="middle" fill="#6b7280">{1000 * total * quarter / 4:.1f}</text>')
        y += 38
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {y - 16}" font-family="sans-serif" font-size="11" fill="#1f2937">'
    return "\n".join([head, '<rect width="100%" height="100%" fill="#ffffff"/>', *parts, "</svg>", ""])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--binaries", type=Path, required=True, help="the folder of the stack's and the functions' binaries")
    parser.add_argument("--followers", type=int, default=2_000)
    parser.add_argument("--out", type=Path, default=ROOT / "docs/images/traces.svg")
    arguments = parser.parse_args()
    binaries = arguments.binaries.resolve()
    with stack.running(binaries / "tidemark-local", TEMPLATE) as running:
        invocations = trace(running, binaries, arguments.followers)
    for invocation in invocations:
        counts = Counter((one["name"], operation(one)) for one in invocation.calls)
        print(f"{invocation.title}: {1000 * (invocation.ended - invocation.started):.1f} ms")
        for (service, name), count in sorted(counts.items()):
            print(f"  {count:4} {service} {name}")
    arguments.out.write_text(picture(invocations), encoding="utf-8")
    print(arguments.out)


if __name__ == "__main__":
    main()
