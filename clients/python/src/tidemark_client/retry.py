"""When a request is repeated, and after what time. Nothing here sends or sleeps."""

from __future__ import annotations

import random
import uuid
from dataclasses import dataclass

import httpx

from .problem import retry_after

#: A POST without a key for which a repetition is harmless.
_REPEATABLE = "/v1/following"
_KEY = "Idempotency-Key"


@dataclass(frozen=True)
class Retries:
    """How often and how long to retry. Times are in seconds."""

    #: The number of repetitions after the first attempt. 0 turns retries off.
    limit: int = 4
    #: The first wait is a random time up to this. Each further wait has twice the range.
    base: float = 0.2
    #: The longest wait without `Retry-After`.
    longest: float = 10.0
    #: A response with a longer `Retry-After` is not retried.
    longest_retry_after: float = 60.0

    def wait(self, attempt: int, request: httpx.Request, outcome: httpx.Response | httpx.TransportError) -> float | None:
        """Seconds until the next attempt, or None if the outcome is final. The first attempt is 0."""
        if attempt >= self.limit:
            return None
        jitter = random.uniform(0, min(self.longest, self.base * 2**attempt))
        if isinstance(outcome, httpx.TransportError):
            return jitter if _repeatable(request) else None
        after = retry_after(outcome) or 0.0
        if after > self.longest_retry_after or not _retryable(request, outcome.status_code):
            return None
        return after + jitter


def add_key(request: httpx.Request) -> None:
    """Gives a request a key before its first attempt, unless the caller chose one. All attempts have the same key."""
    if _KEY not in request.headers:
        request.headers[_KEY] = uuid.uuid4().hex


def _repeatable(request: httpx.Request) -> bool:
    return request.method != "POST" or _KEY in request.headers or request.url.path.endswith(_REPEATABLE)


def _retryable(request: httpx.Request, status: int) -> bool:
    """A 429 has changed nothing. A 502, 503 or 504 may hide a change, as a lost response does."""
    if status == 429:
        return True
    if status == 409:  # The first request with the key is still in flight.
        return _KEY in request.headers
    return status in (502, 503, 504) and _repeatable(request)
