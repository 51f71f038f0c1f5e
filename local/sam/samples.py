"""The sample events in events/<function>/<name>.json: their order, and what each must be answered with."""

import json
import urllib.request
from dataclasses import dataclass
from pathlib import Path

# The legacy Redis that the samples of `migrate` name. Whoever calls them puts one there.
LEGACY_HOST, LEGACY_PORT = "legacy.example.com", 6379


@dataclass(frozen=True)
class Sample:
    """One event of one function, by the name of its binary."""

    function: str
    path: Path

    @property
    def name(self):
        return self.path.stem

    def event(self):
        return json.loads(self.path.read_text(encoding="utf-8"))


def samples(events):
    """All of them: notices are published before anything speaks of them, and what deletes comes last."""
    found = [Sample(path.parent.name, path) for path in events.glob("*/*.json")]
    return sorted(found, key=lambda s: (s.name.startswith("delete"), (s.function, s.name) != ("notice", "publish"), s.function, s.name))


def prepare(base_url):
    """What the samples take for granted: user 1 follows user 2, has a live feed, and user 2 has published."""
    call(base_url, 1, "PUT", "/v1/following/2")
    call(base_url, 1, "GET", "/v1/feed")
    publish(base_url)


def publish(base_url):
    """One more post of user 2."""
    call(base_url, 2, "POST", "/v1/posts", {"title": "for the samples"})


def call(base_url, user, method, path, body=None):
    """As `user` on a local stack. Anything but success is an error."""
    data = None if body is None else json.dumps(body).encode()
    headers = {"Authorization": f"Bearer {user}", "Content-Type": "application/json"}
    urllib.request.urlopen(urllib.request.Request(base_url + path, data, headers, method=method), timeout=30).close()


def judge(sample, answer):
    """What the answer says in a word, and whether that is what it should."""
    if not isinstance(answer, dict):
        return "no object", False
    if "errorType" in answer:
        return f"{answer['errorType']}: {answer.get('errorMessage')}", False
    match sample.function:
        case "fan-out" | "relation-projector":
            failed = [failure["itemIdentifier"] for failure in answer["batchItemFailures"]]
            expected = ["sample-0"] if sample.name == "malformed" else []
            return f"{len(failed)} given back", failed == expected
        case "migrate":
            return "done" if answer["done"] else "not done", answer["done"] is True
        case "reconcile":
            return f"{answer['failed']} failed", answer["failed"] == 0
        case _:
            return str(answer["statusCode"]), 200 <= answer["statusCode"] < 300
