"""The clients: `Tidemark` and `AsyncTidemark`. They have the same methods."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, TypeVar

import httpx

from .operations import AsyncOperations, Operations
from .problem import TidemarkProblem
from .request import Request
from .retry import Retries, add_key

if TYPE_CHECKING:
    from .live import AsyncLive, Live

T = TypeVar("T")


class Tidemark(Operations):
    """A client for one user. Every method raises `TidemarkProblem` for a response other than the requested one.

    `token` is a token, or a function that returns one and is called for every attempt. `timeout` in seconds is for one
    attempt. `base_url` is the address of the API without `/v1`. `live_url` is the address of live updates, if it is not
    `/v1/live` of the API. A deployment has the output `LiveUrl`.
    """

    def __init__(
        self,
        base_url: str,
        token: str | Callable[[], str] | None = None,
        *,
        live_url: str | None = None,
        retries: Retries = Retries(),
        timeout: float = 30.0,
        http: httpx.Client | None = None,
    ) -> None:
        self._base_url = base_url.rstrip("/")
        self._token = token
        self._live_url = live_url
        self._retries = retries
        self._http = http or httpx.Client(timeout=timeout)

    def send(self, request: Request[T]) -> T:
        """Sends what an operation of `tidemark_client.api` returns: `send(api.get_post("2-1"))`."""
        sent = self._http.build_request(request.method, self._base_url + request.path, **request.arguments)
        if request.keyed:
            add_key(sent)
        attempt = 0
        while True:
            token = self._current_token()
            if token is not None:
                sent.headers["Authorization"] = f"Bearer {token}"
            try:
                outcome: httpx.Response | httpx.TransportError = self._http.send(sent)
            except httpx.TransportError as error:
                outcome = error
            wait = self._retries.wait(attempt, sent, outcome)
            if wait is None:
                return _result(request, outcome)
            time.sleep(wait)
            attempt += 1

    def live(
        self,
        on_state: Callable[[bool], None] | None = None,
        *,
        on_inbox: Callable[[int], None] | None = None,
        on_notices: Callable[[int, int], None] | None = None,
        platforms: Sequence[int] | None = None,
        ping: float = 60.0,
    ) -> Live:
        """Unread counts as they change: `for unread in reader.live(): print(unread.total)`.

        `on_state` gets True when changes begin to arrive, and False when the connection is lost. It is opened again.
        `on_inbox` gets the number of unread groups of the inbox when it changes. `on_notices` gets one of the `platforms`,
        of which there are at most ten, and its number of unread notices. A platform that begins with 0 is not told.
        `ping` in seconds is the time from a pong to the next ping.
        """
        from .live import Live, Options, address

        def with_token() -> str:
            return address(self._base_url, self._live_url, self._current_token())

        return Live(with_token, self.unread, Options(on_state, on_inbox, on_notices, platforms, ping))

    def _current_token(self) -> str | None:
        return self._token() if callable(self._token) else self._token

    def close(self) -> None:
        self._http.close()

    def __enter__(self) -> Tidemark:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


class AsyncTidemark(AsyncOperations):
    """`Tidemark` for asyncio. `token` may also be a coroutine function."""

    def __init__(
        self,
        base_url: str,
        token: str | Callable[[], str | Awaitable[str]] | None = None,
        *,
        live_url: str | None = None,
        retries: Retries = Retries(),
        timeout: float = 30.0,
        http: httpx.AsyncClient | None = None,
    ) -> None:
        self._base_url = base_url.rstrip("/")
        self._token = token
        self._live_url = live_url
        self._retries = retries
        self._http = http or httpx.AsyncClient(timeout=timeout)

    async def send(self, request: Request[T]) -> T:
        """Sends what an operation of `tidemark_client.api` returns: `await send(api.get_post("2-1"))`."""
        sent = self._http.build_request(request.method, self._base_url + request.path, **request.arguments)
        if request.keyed:
            add_key(sent)
        attempt = 0
        while True:
            token = await self._current_token()
            if token is not None:
                sent.headers["Authorization"] = f"Bearer {token}"
            try:
                outcome: httpx.Response | httpx.TransportError = await self._http.send(sent)
            except httpx.TransportError as error:
                outcome = error
            wait = self._retries.wait(attempt, sent, outcome)
            if wait is None:
                return _result(request, outcome)
            await asyncio.sleep(wait)
            attempt += 1

    def live(
        self,
        on_state: Callable[[bool], None] | None = None,
        *,
        on_inbox: Callable[[int], None] | None = None,
        on_notices: Callable[[int, int], None] | None = None,
        platforms: Sequence[int] | None = None,
        ping: float = 60.0,
    ) -> AsyncLive:
        """Unread counts as they change: `async for unread in reader.live(): print(unread.total)`."""
        from .live import AsyncLive, Options, address

        async def with_token() -> str:
            return address(self._base_url, self._live_url, await self._current_token())

        return AsyncLive(with_token, self.unread, Options(on_state, on_inbox, on_notices, platforms, ping))

    async def _current_token(self) -> str | None:
        token = self._token() if callable(self._token) else self._token
        return await token if inspect.isawaitable(token) else token

    async def close(self) -> None:
        await self._http.aclose()

    async def __aenter__(self) -> AsyncTidemark:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self.close()


def _result(request: Request[T], outcome: httpx.Response | httpx.TransportError) -> T:
    if isinstance(outcome, httpx.TransportError):
        raise outcome
    if not outcome.is_success:
        raise TidemarkProblem(outcome)
    return request.parse(outcome)
