"""Live updates: unread counts as they change. Needs `websockets` (`pip install tidemark-client[live]`)."""

from __future__ import annotations

import asyncio
import json
import random
import threading
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator
from contextlib import aclosing
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from urllib.parse import quote

import httpx
import websockets.asyncio.client
import websockets.sync.client
from websockets.exceptions import InvalidStatus, InvalidURI, WebSocketException

from .generated import models
from .problem import TidemarkProblem

_PING = '{"type":"ping"}'
_LONGEST_ANSWER = 10.0
_LONGEST_WAIT = 30.0
# Of so many refused pings, one reads the counts: while Redis is unavailable, each read is many reads of facts.
_REFUSALS_PER_READ = 16
#: What ends a connection, or fails an attempt to open one.
_LOST = (OSError, WebSocketException, httpx.TransportError, TidemarkProblem)


@dataclass(frozen=True)
class UnreadChange:
    """A message of the server: the unread counts have changed."""

    total: int
    #: The author of `post`, and the unread posts of this author. All three are None if it is unknown.
    author: str | None
    unread: int | None
    #: The post that changed last.
    post: str | None
    #: When the counts were read.
    at: datetime


#: All counts, or a change of them. Both have `total`.
Unread = models.UnreadCounts | UnreadChange


class Live:
    """Unread counts, for `for`: all counts after each connect, and then each change.

    The loop goes on until a `break`, until `stop`, or until a response is a 401 or a 403, which is raised.
    """

    def __init__(
        self,
        address: Callable[[], str],
        unread: Callable[[], models.UnreadCounts],
        on_state: Callable[[bool], None] | None,
        on_inbox: Callable[[int], None] | None,
        ping: float,
    ) -> None:
        self._address, self._unread, self._ping = address, unread, ping
        self._on_state, self._on_inbox = on_state, on_inbox
        self._stopped = threading.Event()
        self._socket: websockets.sync.client.ClientConnection | None = None

    def stop(self) -> None:
        """Ends the loop, which may run in another thread."""
        self._stopped.set()
        if self._socket is not None:
            self._socket.close()

    def __iter__(self) -> Iterator[Unread]:
        course = _Course(self._on_state, self._on_inbox, self._ping)
        try:
            while not self._stopped.is_set():
                try:
                    yield from self._connection(course)
                except _LOST as error:
                    self._stopped.wait(course.lost(error))
        finally:
            course.become(False)

    def _connection(self, course: _Course) -> Iterator[Unread]:
        course.begin()
        with websockets.sync.client.connect(self._address(), ping_interval=None, close_timeout=1) as socket:
            self._socket = socket
            socket.send(course.ping())
            while not self._stopped.is_set():
                try:
                    received = course.receive(socket.recv(timeout=course.left()))
                except TimeoutError:
                    socket.send(course.ping())
                    continue
                if isinstance(received, UnreadChange):
                    yield received
                elif received is not None:
                    yield self._unread()
                    course.become(received.registered)


class AsyncLive:
    """`Live` for `async for`. Cancel the task to end it."""

    def __init__(
        self,
        address: Callable[[], Awaitable[str]],
        unread: Callable[[], Awaitable[models.UnreadCounts]],
        on_state: Callable[[bool], None] | None,
        on_inbox: Callable[[int], None] | None,
        ping: float,
    ) -> None:
        self._address, self._unread, self._ping = address, unread, ping
        self._on_state, self._on_inbox = on_state, on_inbox

    async def __aiter__(self) -> AsyncIterator[Unread]:
        course = _Course(self._on_state, self._on_inbox, self._ping)
        try:
            while True:
                try:
                    async with aclosing(self._connection(course)) as connection:
                        async for unread in connection:
                            yield unread
                except _LOST as error:
                    await asyncio.sleep(course.lost(error))
        finally:
            course.become(False)

    async def _connection(self, course: _Course) -> AsyncGenerator[Unread]:
        course.begin()
        address = await self._address()
        async with websockets.asyncio.client.connect(address, ping_interval=None, close_timeout=1) as socket:
            await socket.send(course.ping())
            while True:
                try:
                    async with asyncio.timeout(course.left()):
                        received = course.receive(await socket.recv())
                except TimeoutError:
                    await socket.send(course.ping())
                    continue
                if isinstance(received, UnreadChange):
                    yield received
                elif received is not None:
                    yield await self._unread()
                    course.become(received.registered)


@dataclass(frozen=True)
class _Read:
    """The counts have to be read. Then changes arrive if the connection is registered."""

    registered: bool


class _Course:
    """The course of the connections: when to ping, what a message means, how long to wait. It neither sends nor waits."""

    def __init__(
        self, on_state: Callable[[bool], None] | None, on_inbox: Callable[[int], None] | None, ping: float
    ) -> None:
        self._on_state, self._on_inbox, self._ping = on_state, on_inbox, ping
        self._live = False
        self._newest: datetime | None = None
        self._newest_inbox: datetime | None = None
        self._failures = 0

    def begin(self) -> None:
        self._began = time.monotonic()
        self._awaited = False
        self._refusals = 0

    def left(self) -> float:
        """Seconds until the next ping, or until the pong to the last one is late."""
        return max(0.0, self._due - time.monotonic())

    def ping(self) -> str:
        if self._awaited:
            raise ConnectionError("no response to a ping")
        self._awaited = True
        self._due = time.monotonic() + min(self._ping, _LONGEST_ANSWER)
        return _PING

    def receive(self, text: str | bytes) -> UnreadChange | _Read | None:
        message = json.loads(text)
        if message.get("type") == "unread":
            return self._change(message)
        if message.get("type") == "inbox":
            self._inbox(message)
            return None
        # A pong says that the connection is registered. After any other message, the ping is sent again soon.
        registered = message.get("type") == "pong"
        self._awaited = False
        self._refusals = 0 if registered else self._refusals + 1
        self._due = time.monotonic() + (self._ping if registered else _wait(self._refusals))
        known = self._live if registered else self._refusals % _REFUSALS_PER_READ != 1
        return None if known else _Read(registered)

    def _change(self, message: dict[str, Any]) -> UnreadChange | None:
        """A change with an earlier time than one before it is stale."""
        fields = {name: message[name] for name in ("total", "author", "unread", "post")}
        change = UnreadChange(**fields, at=datetime.fromisoformat(message["at"]))
        if self._newest is not None and change.at <= self._newest:
            return None
        self._newest = change.at
        return change

    def _inbox(self, message: dict[str, Any]) -> None:
        """Tells the number of unread groups, unless a newer one was told."""
        at = datetime.fromisoformat(message["at"])
        if self._newest_inbox is None or at > self._newest_inbox:
            self._newest_inbox = at
            if self._on_inbox is not None:
                self._on_inbox(message["unread"])

    def become(self, live: bool) -> None:
        if live != self._live:
            self._live = live
            if self._on_state is not None:
                self._on_state(live)

    def lost(self, error: Exception) -> float:
        """Returns the seconds until the next connection. Raises a problem that another attempt does not change."""
        self.become(False)
        if isinstance(error, InvalidStatus):
            response = error.response
            error = TidemarkProblem(httpx.Response(response.status_code, content=bytes(response.body or b"")))
        refused = isinstance(error, TidemarkProblem) and error.status in (401, 403)
        if refused or isinstance(error, InvalidURI):
            raise error
        failures = 0 if time.monotonic() - self._began > _LONGEST_WAIT else self._failures
        self._failures = failures + 1
        return _wait(failures)


def _wait(failures: int) -> float:
    """A random time. Its range doubles with each failure."""
    return random.uniform(0, min(_LONGEST_WAIT, 2.0**failures))


def address(base_url: str, live_url: str | None, token: str | None) -> str:
    """The address of a connection. The token is in the query, because browsers can set no header there."""
    url = live_url or f"ws{base_url.removeprefix('http')}/v1/live"
    return url if token is None else f"{url}?token={quote(token, safe='')}"
