"""Walks through lists page by page."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any, Generic, Protocol, TypeVar

ItemT = TypeVar("ItemT")


class Page(Protocol[ItemT]):
    """What the pages of all lists have."""

    items: list[ItemT]
    next_cursor: str | None


PageT = TypeVar("PageT", bound=Page[Any])


class Pager(Generic[PageT, ItemT]):
    """All items of a list. It requests a page when the loop reaches it. Each loop begins at the first page again."""

    def __init__(self, load: Callable[[str | None], PageT]) -> None:
        self._load = load

    def pages(self) -> Iterator[PageT]:
        """The pages, with what they have besides items: `unread_total`, `profiles`, `rebuilding`."""
        page = self._load(None)
        yield page
        while (cursor := page.next_cursor) is not None:
            page = self._load(cursor)
            yield page

    def __iter__(self) -> Iterator[ItemT]:
        for page in self.pages():
            yield from page.items


class AsyncPager(Generic[PageT, ItemT]):
    """All items of a list, for `async for`."""

    def __init__(self, load: Callable[[str | None], Awaitable[PageT]]) -> None:
        self._load = load

    async def pages(self) -> AsyncIterator[PageT]:
        """The pages, with what they have besides items: `unread_total`, `profiles`, `rebuilding`."""
        page = await self._load(None)
        yield page
        while (cursor := page.next_cursor) is not None:
            page = await self._load(cursor)
            yield page

    async def __aiter__(self) -> AsyncIterator[ItemT]:
        async for page in self.pages():
            for item in page.items:
                yield item
