"""Walks through lists page by page."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any, Generic, Protocol, TypeVar

from .generated import models

ItemT = TypeVar("ItemT")

#: The profiles that a list keeps at most. A page has fewer.
_KEPT = 10_000


class Page(Protocol[ItemT]):
    """What the pages of all lists have."""

    items: list[ItemT]
    next_cursor: str | None


PageT = TypeVar("PageT", bound=Page[Any])


class _Profiles:
    def __init__(self) -> None:
        #: The profiles of the users on the pages that were requested, by user id: the 10,000 that were seen last.
        self.profiles: dict[str, models.Card] = {}

    def name(self, user: str) -> str:
        """The name of a user on the pages that were requested, or the id of a user without a profile."""
        return self.profiles[user].name if user in self.profiles else user

    def _keep(self, page: object) -> None:
        profiles = getattr(page, "profiles", None)
        if isinstance(profiles, models.Profiles):
            for user, card in profiles.additional_properties.items():
                self.profiles.pop(user, None)
                self.profiles[user] = card
        while len(self.profiles) > _KEPT:
            del self.profiles[next(iter(self.profiles))]


class Pager(_Profiles, Generic[PageT, ItemT]):
    """A list. `for` gives its items, and requests a page when the loop reaches it.

    Each loop begins at the first page again.
    """

    def __init__(self, load: Callable[[str | None], PageT]) -> None:
        super().__init__()
        self._load = load

    def page(self) -> PageT:
        """The first page, with what it has besides items: `unread_total`, `next_cursor`, `first_cursor`."""
        return self._request(None)

    def pages(self) -> Iterator[PageT]:
        """The pages, one after another."""
        page = self._request(None)
        yield page
        while (cursor := page.next_cursor) is not None:
            page = self._request(cursor)
            yield page

    def __iter__(self) -> Iterator[ItemT]:
        for page in self.pages():
            yield from page.items

    def _request(self, cursor: str | None) -> PageT:
        page = self._load(cursor)
        self._keep(page)
        return page


class AsyncPager(_Profiles, Generic[PageT, ItemT]):
    """A list, for `async for`."""

    def __init__(self, load: Callable[[str | None], Awaitable[PageT]]) -> None:
        super().__init__()
        self._load = load

    async def page(self) -> PageT:
        """The first page, with what it has besides items: `unread_total`, `next_cursor`, `first_cursor`."""
        return await self._request(None)

    async def pages(self) -> AsyncIterator[PageT]:
        """The pages, one after another."""
        page = await self._request(None)
        yield page
        while (cursor := page.next_cursor) is not None:
            page = await self._request(cursor)
            yield page

    async def __aiter__(self) -> AsyncIterator[ItemT]:
        async for page in self.pages():
            for item in page.items:
                yield item

    async def _request(self, cursor: str | None) -> PageT:
        page = await self._load(cursor)
        self._keep(page)
        return page
