"""A request that has not been sent yet."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import httpx

T_co = TypeVar("T_co", covariant=True)


@dataclass(frozen=True)
class Request(Generic[T_co]):
    """What an operation of `tidemark_client.api` returns. `Tidemark.send` and `AsyncTidemark.send` send it."""

    method: str
    path: str
    #: Further arguments of `httpx.Client.build_request`.
    arguments: dict[str, Any]
    parse: Callable[[httpx.Response], T_co]
    #: Whether it takes an idempotency key.
    keyed: bool = False
