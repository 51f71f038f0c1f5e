"""Problem details (RFC 9457) as an exception."""

from __future__ import annotations

import email.utils
import time
from dataclasses import dataclass
from typing import Any

import httpx

#: The slugs of responses that API Gateway makes itself. Their body is `{"message": …}`.
_SLUGS = {
    304: "not-modified",
    401: "unauthorized",
    403: "forbidden",
    404: "not-found",
    413: "body-too-large",
    429: "too-many-requests",
    503: "unavailable",
}


@dataclass(frozen=True)
class FieldError:
    """An error in one field of a request."""

    field: str
    message: str


class TidemarkProblem(Exception):
    """A response other than the requested one."""

    def __init__(self, response: httpx.Response) -> None:
        body = _body(response)
        #: The status of the response.
        self.status = response.status_code
        kind = body.get("type")
        #: The last segment of `type`: `not-found`.
        self.slug: str = kind.rsplit("/", 1)[-1] if isinstance(kind, str) else _SLUGS.get(self.status, "internal")
        #: The kind of problem, a stable URI reference: `/problems/not-found`.
        self.type: str = kind if isinstance(kind, str) else f"/problems/{self.slug}"
        #: The kind in words.
        self.title: str = body.get("title", response.reason_phrase)
        #: The cause in this case.
        self.detail: str = body.get("detail") or body.get("message") or response.reason_phrase
        #: The same as in the log of the server.
        self.request_id: str = body.get("request_id") or response.headers.get("apigw-requestid", "")
        #: The invalid fields of the request.
        self.errors = [FieldError(it["field"], it["message"]) for it in body.get("errors", [])]
        #: `Retry-After` in seconds, if the response has it.
        self.retry_after = retry_after(response)
        super().__init__(f"{self.status} {self.slug}: {self.detail}")


def _body(response: httpx.Response) -> dict[str, Any]:
    try:
        body = response.json()
    except ValueError:
        return {"message": response.text}
    return body if isinstance(body, dict) else {}


def retry_after(response: httpx.Response) -> float | None:
    """`Retry-After` in seconds. It is a number of seconds or a date."""
    value: str | None = response.headers.get("retry-after")
    if value is None:
        return None
    if value.isdecimal():
        return float(value)
    try:
        return max(0.0, email.utils.parsedate_to_datetime(value).timestamp() - time.time())
    except ValueError:
        return None
