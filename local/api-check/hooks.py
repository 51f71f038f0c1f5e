"""Rules of the API that the document cannot express as schemas."""

import json
import re
from datetime import datetime
from pathlib import Path

import schemathesis
from hypothesis import strategies as st

# Times in requests lie in the future, so that an expiry is valid. The tests in Rust cover past times.
FUTURE = st.datetimes(min_value=datetime(2090, 1, 1))
schemathesis.openapi.format("date-time", FUTURE.map(lambda time: time.isoformat(timespec="milliseconds") + "Z"))

# Refusals that the document describes in words, because no schema can express them: field and message.
SAID_IN_WORDS = {
    ("offset", "does not go with a cursor"),
    ("since", "cannot be combined with order=oldest"),
    ("user", "must be another user"),
    ("expires_at", "must lie in the future"),
    ("body", "must have at most 65536 bytes"),
    ("all", "must be true"),
    ("picture", "must be an https URL"),
}


# Paths that a path with a parameter matches too. API Gateway routes their other methods to that path.
COVERED = {"/v1/notices/unread", "/v1/notices/reads"}


@schemathesis.hook
def filter_failure(context, failure, case, response):
    """Drops refusals that the document describes in words, and failures of other methods on covered paths. Keeps all other failures."""
    kind = type(failure).__name__
    if kind in ("UnsupportedMethodResponse", "AllowHeaderMismatch") and case.path in COVERED:
        return False
    # `null` is accepted as no body.
    if kind == "AcceptedNegativeData" and case.operation.definition.raw.get("operationId") == "follow" and case.body is None:
        return False
    if kind != "RejectedPositiveData" or response.status_code != 400:
        return True
    # Beside an example, the tester's coverage takes a time that may be null for any string.
    if isinstance(case.body, dict) and "" in (case.body.get("before"), case.body.get("expires_at")):
        return False
    errors = json.loads(response.content).get("errors", [])
    # The cursors that the tester knows are of the order by time.
    if (case.query or {}).get("order") in ("ranked", "oldest") and any(error["field"] == "cursor" for error in errors):
        return False
    return not any((error["field"], error["message"]) in SAID_IN_WORDS for error in errors)


DOCUMENT = json.loads(Path("openapi.yaml").read_text())


@schemathesis.check
def problem_is_described(context, response, case):
    """A problem has the status of its response, and the response's description names its kind."""
    if response.headers.get("content-type") != ["application/problem+json"]:
        return
    problem, status = json.loads(response.content), str(response.status_code)
    assert str(problem["status"]) == status, f"status {problem['status']} in a response with {status}"
    described = DOCUMENT["paths"][case.path].get(case.method.lower(), {}).get("responses", {}).get(status, {})
    if name := described.get("$ref"):
        described = DOCUMENT["components"]["responses"][name.rsplit("/", 1)[1]]
    kinds = re.findall(r"`([a-z-]+)`:", described.get("description", ""))
    assert not kinds or problem["type"].removeprefix("/problems/") in kinds, f"{problem['type']} is none of {kinds}"
