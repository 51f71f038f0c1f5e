"""Live updates: unread counts as they change. Needs `websockets` (`pip install tidemark-client[live]`)."""

from __future__ import annotations

import asyncio
import json
import random
import threading
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from urllib.parse import quote

import httpx

try:
    import websockets.asyncio.client
    import websockets.sync.client
    from websockets.exceptions import InvalidStatus, InvalidURI, WebSocketException
except ImportError as error:
    raise ImportError("live() needs the package websockets: pip install 'tidemark-client[live]'") from error

from .generated import models
from .problem import TidemarkProblem

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


@dataclass(frozen=True)
class Options:
    """The options of `live`."""

    on_state: Callable[[bool], None] | None = None
    on_inbox: Callable[[int], None] | None = None
    on_notices: Callable[[int, int], None] | None = None
    platforms: Sequence[int] | None = None
    ping: float = 60.0


class Live:
    """Unread counts, for `for`: all counts after each connect, and then each change.

    The loop goes on until a `break`, until `stop`, or until a response is a 401 or a 403, which is raised.
    """

    def __init__(
        self,
        address: Callable[[], str],
        unread: Callable[[], models.UnreadCounts],
        options: Options,
    ) -> None:
        self._address, self._unread, self._options = address, unread, options
        self._stopped = threading.Event()
        self._socket: websockets.sync.client.ClientConnection | None = None

    def stop(self) -> None:
        """Ends the loop, which may run in another thread."""
        self._stopped.set()
        if self._socket is not None:
            self._socket.close()

    def __iter__(self) -> Iterator[Unread]:
        course = _Course(self._options)
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
        options: Options,
    ) -> None:
        self._address, self._unread, self._options = address, unread, options

    async def __aiter__(self) -> AsyncIterator[Unread]:
        course = _Course(self._options)
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

    def __init__(self, options: Options) -> None:
        self._options = options
        platforms = {} if options.platforms is None else {"platforms": list(options.platforms)}
        self._ping = json.dumps({"type": "ping", **platforms})
        self._live = False
        self._newest: datetime | None = None
        #: The time of the newest message about the inbox, and about each platform.
        self._newest_of: dict[int | None, datetime] = {}
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
        self._due = time.monotonic() + min(self._options.ping, _LONGEST_ANSWER)
        return self._ping

    def receive(self, text: str | bytes) -> UnreadChange | _Read | None:
        message = json.loads(text)
        if message.get("type") == "unread":
            return self._change(message)
        if message.get("type") in ("inbox", "notices"):
            self._count(message)
            return None
        # A pong says that the connection is registered. After any other message, the ping is sent again soon.
        registered = message.get("type") == "pong"
        self._awaited = False
        self._refusals = 0 if registered else self._refusals + 1
        self._due = time.monotonic() + (self._options.ping if registered else _wait(self._refusals))
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

    def _count(self, message: dict[str, Any]) -> None:
        """A number of unread groups of the inbox, or of unread notices of a platform. It is stale as a change is."""
        platform, at = message.get("platform"), datetime.fromisoformat(message["at"])
        if platform in self._newest_of and at <= self._newest_of[platform]:
            return
        self._newest_of[platform] = at
        if platform is None:
            if self._options.on_inbox is not None:
                self._options.on_inbox(message["unread"])
        elif self._options.on_notices is not None:
            self._options.on_notices(platform, message["unread"])

    def become(self, live: bool) -> None:
        if live != self._live:
            self._live = live
            if self._options.on_state is not None:
                self._options.on_state(live)

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
