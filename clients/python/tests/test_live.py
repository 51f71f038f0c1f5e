"""Live updates on a running stack, whose address is TIDEMARK_URL. `clients/check.sh` starts one."""

from __future__ import annotations

import asyncio
import os
import random
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from proxy import Fault, Proxy

from tidemark_client import AsyncTidemark, Tidemark, TidemarkProblem, models
from tidemark_client.live import Options, Unread, UnreadChange, _Course

STACK = os.environ.get("TIDEMARK_URL", "http://127.0.0.1:3000")


def new_user() -> str:
    """A user whom no other test uses."""
    return str(2**40 + random.SystemRandom().randrange(2**40))


def until(what: str, condition: Callable[[], object]) -> None:
    end = time.monotonic() + 40
    while not condition():
        assert time.monotonic() < end, f"not in time: {what}"
        time.sleep(0.01)


def test_without_websockets_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "tidemark_client.live")
    monkeypatch.setitem(sys.modules, "websockets", None)
    with pytest.raises(ImportError, match=r"pip install 'tidemark-client\[live\]'"):
        Tidemark(STACK).live()


def test_of_sixteen_refused_pings_one_reads_the_counts() -> None:
    course = _Course(Options())
    course.begin()

    def responds(text: str) -> bool:
        course.ping()
        return course.receive(text) is not None

    refused = [responds('{"type":"error","error":"unavailable","detail":""}') for _ in range(40)]
    assert [index for index, reads in enumerate(refused) if reads] == [0, 16, 32]
    assert responds('{"type":"pong"}'), "the connection is registered"
    course.become(True)
    assert not responds('{"type":"pong"}')


class Watch:
    """A thread with live updates, and what it was told."""

    def __init__(self, kind: str, url: str, token: str, ping: float) -> None:
        self.told: list[Unread] = []
        self.states: list[bool] = []
        self.problem: TidemarkProblem | None = None
        self.stop: Callable[[], Any] = lambda: None
        self._kind, self._url, self._token, self._ping = kind, url, token, ping
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        try:
            if self._kind == "thread":
                with Tidemark(self._url, self._token) as tidemark:
                    live = tidemark.live(self.states.append, ping=self._ping)
                    self.stop = live.stop
                    self.told.extend(live)
            else:
                asyncio.run(self._run_async())
        except TidemarkProblem as problem:
            self.problem = problem

    async def _run_async(self) -> None:
        async def listen() -> None:
            async with AsyncTidemark(self._url, self._token) as tidemark:
                async for unread in tidemark.live(self.states.append, ping=self._ping):
                    self.told.append(unread)

        task, loop = asyncio.create_task(listen()), asyncio.get_running_loop()
        self.stop = lambda: loop.is_closed() or loop.call_soon_threadsafe(task.cancel)
        await asyncio.wait([task])
        if not task.cancelled():
            task.result()

    def join(self) -> None:
        self._thread.join(30)
        assert not self._thread.is_alive(), "the updates have ended"

    def total(self, count: int) -> None:
        until(f"{count} unread", lambda: self.told and self.told[-1].total == count)

    def state(self, *expected: bool) -> None:
        until(f"states {expected}", lambda: tuple(self.states[: len(expected)]) == expected)


class Scene:
    """A reader who follows an author and is live through a proxy."""

    def __init__(self, kind: str, proxy: Proxy, ping: float) -> None:
        self.reader_id, self.author_id = new_user(), new_user()
        self.reader, self.author = Tidemark(STACK, self.reader_id), Tidemark(STACK, self.author_id)
        self.reader.follow(self.author_id)
        self.proxy = proxy
        self.watch = Watch(kind, proxy.url, self.reader_id, ping)

    def connects(self) -> int:
        return sum(seen.path.startswith("/v1/live") for seen in self.proxy.seen)


@contextmanager
def scene(kind: str, *faults: Fault, ping: float = 60.0) -> Iterator[Scene]:
    with Proxy(STACK, list(faults)) as proxy:
        made = Scene(kind, proxy, ping)
        try:
            yield made
        finally:
            made.watch.stop()
            made.watch.join()


both = pytest.mark.parametrize("kind", ["thread", "asyncio"])


@both
def test_counts_come_first_then_what_happens_elsewhere(kind: str) -> None:
    with scene(kind) as at:
        at.watch.state(True)
        assert [unread.total for unread in at.watch.told] == [0]
        assert isinstance(at.watch.told[0], models.UnreadCounts)
        post = at.author.publish("Hello")
        at.watch.total(1)
        change = at.watch.told[1]
        assert isinstance(change, UnreadChange)
        assert (change.author, change.unread, change.post) == (at.author_id, 1, post.id)
        assert change.at >= post.created_at
        at.reader.mark_read(models.MarkPosts(posts=[post.id]))
        at.watch.total(0)
        withdrawn = at.author.publish("Withdrawn")
        at.watch.total(1)
        at.author.delete_post(withdrawn.id)
        at.watch.total(0)


@both
def test_a_connection_that_is_cut_is_opened_again_and_the_counts_are_read(kind: str) -> None:
    with scene(kind) as at:
        at.watch.state(True)
        at.proxy.tunnels[-1].cut()
        at.watch.state(True, False)
        at.author.publish("Meanwhile")
        at.watch.state(True, False, True)
        at.watch.total(1)
        assert any(isinstance(unread, models.UnreadCounts) for unread in at.watch.told[1:])
        at.author.publish("Afterwards")
        at.watch.total(2)
        assert isinstance(at.watch.told[-1], UnreadChange)


@both
def test_a_connection_without_a_pong_is_replaced(kind: str) -> None:
    with scene(kind, ping=0.5) as at:
        at.watch.state(True)
        at.proxy.tunnels[-1].silence()
        at.watch.state(True, False, True)
        assert at.connects() >= 2
        at.author.publish("Hello")
        at.watch.total(1)


@both
def test_a_handshake_that_fails_is_tried_again(kind: str) -> None:
    with scene(kind, Fault(503)) as at:
        at.watch.state(True)
        assert at.connects() == 2


@both
def test_a_message_that_comes_again_later_is_left_out(kind: str) -> None:
    with scene(kind) as at:
        at.watch.state(True)
        for count in (1, 2):
            at.author.publish(f"Post {count}")
            at.watch.total(count)
        at.proxy.tunnels[-1].replay()
        at.author.publish("Post 3")
        at.watch.total(3)
        assert [unread.total for unread in at.watch.told if isinstance(unread, UnreadChange)] == [1, 2, 3]


@both
def test_a_token_that_is_refused_ends_the_updates_with_its_problem(kind: str) -> None:
    with Proxy(STACK, []) as proxy:
        watch = Watch(kind, proxy.url, "nobody", 60.0)
        watch.join()
        assert watch.problem and (watch.problem.status, watch.problem.slug) == (401, "unauthorized")
        assert [seen.path for seen in proxy.seen] == ["/v1/live?token=nobody"]


@both
def test_a_user_who_has_asked_to_leave_gets_no_more_updates(kind: str) -> None:
    with scene(kind, ping=0.5) as at:
        at.watch.state(True)
        at.reader.erase_me()
        at.watch.join()
        assert at.watch.problem and at.watch.problem.slug == "erased"
        at.watch.state(True, False)


@both
def test_the_end_closes_the_connection_and_no_other_is_opened(kind: str) -> None:
    with scene(kind) as at:
        at.watch.state(True)
        at.watch.stop()
        at.watch.join()
        until("the connection is closed", at.proxy.tunnels[-1].closed.is_set)
        at.watch.state(True, False)
        assert at.connects() == 1


def test_a_break_closes_the_connection() -> None:
    with Proxy(STACK, []) as proxy, Tidemark(proxy.url, new_user()) as tidemark:
        for unread in tidemark.live():
            assert unread.total == 0
            break
        until("the connection is closed", proxy.tunnels[-1].closed.is_set)


def test_unread_notices_of_the_platforms_that_were_asked_for_and_the_inbox_are_told() -> None:
    platform, user, operator = random.SystemRandom().randrange(1, 65_536), new_user(), new_user()
    notices: list[tuple[int, int]] = []
    inbox: list[int] = []
    with Tidemark(STACK, user) as reader, Tidemark(STACK, f"{operator} notices:write") as writer:
        live = reader.live(
            on_inbox=inbox.append, on_notices=lambda *told: notices.append(told), platforms=[platform], ping=1.5
        )
        totals: list[int] = []
        thread = threading.Thread(target=lambda: totals.extend(unread.total for unread in live))
        thread.start()
        writer.publish_notices([platform], "Maintenance")
        until("the notice is told", lambda: notices)
        assert notices[0] == (platform, 1)
        reader.mark_notices_read(platform, 1)
        until("the mark is told", lambda: notices[-1] == (platform, 0))
        writer.follow(user)
        until("the follower is told", lambda: inbox[-1:] == [1])
        live.stop()
        thread.join(30)
        assert not thread.is_alive() and set(totals) == {0}
