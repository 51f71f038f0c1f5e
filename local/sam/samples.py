"""The sample events in events/<function>/<name>.json: their order, and the expected response to each."""

import json
import urllib.request
from dataclasses import dataclass
from pathlib import Path

# The legacy Redis that the samples of `migrate` name. The caller must provide it.
LEGACY_HOST, LEGACY_PORT = "legacy.example.com", 6379

# Samples that other samples need.
FIRST = {("notice", "publish"), ("profile", "set"), ("follow", "make-list")}


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
    """All samples. Samples that publish notices, set a profile or make a list come first, samples that delete or retract come last."""
    found = [Sample(path.parent.name, path) for path in events.glob("*/*.json")]
    return sorted(found, key=lambda s: (s.name.startswith(("delete", "retract")), (s.function, s.name) not in FIRST, s.function, s.name))


def prepare(base_url):
    """Creates the data that the samples need: user 1 follows user 2 and has a live feed, and both have published."""
    call(base_url, 1, "PUT", "/v1/following/2")
    call(base_url, 1, "GET", "/v1/feed")
    publish(base_url, 1)
    publish(base_url, 2)


def publish(base_url, user):
    """Publishes one more post of a user."""
    call(base_url, user, "POST", "/v1/posts", {"title": "for the samples"})


def call(base_url, user, method, path, body=None):
    """Sends a request as `user` to a local stack. Fails on any status other than success."""
    data = None if body is None else json.dumps(body).encode()
    headers = {"Authorization": f"Bearer {user}", "Content-Type": "application/json"}
    urllib.request.urlopen(urllib.request.Request(base_url + path, data, headers, method=method), timeout=30).close()


def judge(sample, response):
    """The response in a word, and true if it is the expected one."""
    if not isinstance(response, dict):
        return "no object", False
    if "errorType" in response:
        return f"{response['errorType']}: {response.get('errorMessage')}", False
    match sample.function:
        case "live-authorizer":
            effect = response["policyDocument"]["Statement"][0]["Effect"]
            return effect, effect == "Deny"
        case "fan-out" | "projector" | "live-sender":
            failed = [failure["itemIdentifier"] for failure in response["batchItemFailures"]]
            expected = ["sample-0"] if sample.name == "malformed" else []
            return f"{len(failed)} given back", failed == expected
        case "migrate":
            return "done" if response["done"] else "not done", response["done"] is True
        case "reconcile":
            return f"{response['failed']} failed", response["failed"] == 0
        case "live" if "batchItemFailures" in response:
            return "given back", response["batchItemFailures"] == []
        case _:
            return str(response["statusCode"]), 200 <= response["statusCode"] < 300
