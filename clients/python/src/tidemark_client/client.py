"""The clients: `Tidemark` and `AsyncTidemark`. They have the same methods."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, TypeVar

import httpx

from .generated import api, models
from .generated.types import UNSET
from .pager import AsyncPager, Page, Pager
from .problem import TidemarkProblem
from .request import Request
from .retry import Retries, add_key

if TYPE_CHECKING:
    from .live import AsyncLive, Live

P = ParamSpec("P")
T = TypeVar("T")
ItemT = TypeVar("ItemT")
Status = Literal["all", "unread"]
Order = Literal["time", "ranked"]


def _at(operation: Callable[..., Request[T]], arguments: Any, options: Any, cursor: str | None) -> Request[T]:
    return operation(*arguments, **options) if cursor is None else operation(*arguments, **{**options, "cursor": cursor})


def _follow(author: str, preference: int | None) -> Request[models.Following]:
    return api.follow(author, body=UNSET if preference is None else models.FollowRequest(preference=preference))


def _publish(title: str, body: str | None, data: dict[str, Any] | None, weight: int) -> Request[models.PublishedPost]:
    free = None if data is None else models.PublishPostRequestDataType0.from_dict(data)
    return api.publish_post(body=models.PublishPostRequest(title=title, body=body, data=free, weight=weight))


def _notices(
    platforms: list[int], title: str, body: str | None, expires_at: Any
) -> Request[models.PublishedNotices]:
    request = models.PublishNoticesRequest(platforms=list(platforms), title=title, body=body, expires_at=expires_at)
    return api.publish_notices(body=request)


class Tidemark:
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

    def walk(self, operation: Callable[P, Request[Page[ItemT]]], *args: P.args, **kwargs: P.kwargs) -> Pager[Page[ItemT], ItemT]:
        """All items of a list: `walk(api.list_mutes)`."""
        return Pager(lambda cursor: self.send(_at(operation, args, kwargs, cursor)))

    def follow(self, author: str, preference: int | None = None) -> models.Following:
        return self.send(_follow(author, preference))

    def unfollow(self, author: str) -> models.NotFollowing:
        return self.send(api.unfollow(author))

    def publish(
        self, title: str, body: str | None = None, *, data: dict[str, Any] | None = None, weight: int = 0
    ) -> models.PublishedPost:
        """Publishes a post, once, however often the request is repeated."""
        return self.send(_publish(title, body, data, weight))

    def publish_notices(
        self, platforms: list[int], title: str, body: str | None = None, *, expires_at: Any = None
    ) -> models.PublishedNotices:
        """Publishes a notice on each platform, once. Needs the scope `notices:write`."""
        return self.send(_notices(platforms, title, body, expires_at))

    def feed(
        self, *, status: Status = "all", order: Order = "time", limit: int = 20
    ) -> Pager[models.FeedPage, models.PostItem]:
        """The caller's feed. `walk(api.read_feed, …)` takes the other parameters."""
        return Pager(lambda at: self.send(_at(api.read_feed, (), dict(status=status, order=order, limit=limit), at)))

    def posts(self, author: str, *, status: Status = "all", limit: int = 20) -> Pager[models.TimelinePage, models.PostItem]:
        return Pager(lambda at: self.send(_at(api.list_author_posts, (author,), dict(status=status, limit=limit), at)))

    def unread(self) -> models.UnreadCounts:
        return self.send(api.count_unread())

    def mark_read(self, body: models.MarkPosts | models.MarkThrough | models.MarkAll) -> models.PostsMarked:
        return self.send(api.mark_read(body=body))

    def live(
        self,
        on_state: Callable[[bool], None] | None = None,
        *,
        on_inbox: Callable[[int], None] | None = None,
        ping: float = 60.0,
    ) -> Live:
        """Unread counts as they change: `for unread in reader.live(): print(unread.total)`.

        `on_state` gets True when changes begin to arrive, and False when the connection is lost. It is opened again.
        `on_inbox` gets the number of unread groups of the inbox when it changes.
        `ping` in seconds is the time from a pong to the next ping.
        """
        from .live import Live, address

        def with_token() -> str:
            return address(self._base_url, self._live_url, self._current_token())

        return Live(with_token, self.unread, on_state, on_inbox, ping)

    def _current_token(self) -> str | None:
        return self._token() if callable(self._token) else self._token

    def close(self) -> None:
        self._http.close()

    def __enter__(self) -> Tidemark:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


class AsyncTidemark:
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

    def walk(
        self, operation: Callable[P, Request[Page[ItemT]]], *args: P.args, **kwargs: P.kwargs
    ) -> AsyncPager[Page[ItemT], ItemT]:
        """All items of a list: `walk(api.list_mutes)`."""
        return AsyncPager(lambda cursor: self.send(_at(operation, args, kwargs, cursor)))

    async def follow(self, author: str, preference: int | None = None) -> models.Following:
        return await self.send(_follow(author, preference))

    async def unfollow(self, author: str) -> models.NotFollowing:
        return await self.send(api.unfollow(author))

    async def publish(
        self, title: str, body: str | None = None, *, data: dict[str, Any] | None = None, weight: int = 0
    ) -> models.PublishedPost:
        """Publishes a post, once, however often the request is repeated."""
        return await self.send(_publish(title, body, data, weight))

    async def publish_notices(
        self, platforms: list[int], title: str, body: str | None = None, *, expires_at: Any = None
    ) -> models.PublishedNotices:
        """Publishes a notice on each platform, once. Needs the scope `notices:write`."""
        return await self.send(_notices(platforms, title, body, expires_at))

    def feed(
        self, *, status: Status = "all", order: Order = "time", limit: int = 20
    ) -> AsyncPager[models.FeedPage, models.PostItem]:
        """The caller's feed. `walk(api.read_feed, …)` takes the other parameters."""
        return AsyncPager(lambda at: self.send(_at(api.read_feed, (), dict(status=status, order=order, limit=limit), at)))

    def posts(
        self, author: str, *, status: Status = "all", limit: int = 20
    ) -> AsyncPager[models.TimelinePage, models.PostItem]:
        options = dict(status=status, limit=limit)
        return AsyncPager(lambda at: self.send(_at(api.list_author_posts, (author,), options, at)))

    async def unread(self) -> models.UnreadCounts:
        return await self.send(api.count_unread())

    async def mark_read(self, body: models.MarkPosts | models.MarkThrough | models.MarkAll) -> models.PostsMarked:
        return await self.send(api.mark_read(body=body))

    def live(
        self,
        on_state: Callable[[bool], None] | None = None,
        *,
        on_inbox: Callable[[int], None] | None = None,
        ping: float = 60.0,
    ) -> AsyncLive:
        """Unread counts as they change: `async for unread in reader.live(): print(unread.total)`."""
        from .live import AsyncLive, address

        async def with_token() -> str:
            return address(self._base_url, self._live_url, await self._current_token())

        return AsyncLive(with_token, self.unread, on_state, on_inbox, ping)

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
