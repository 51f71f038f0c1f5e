"""On a running stack, whose address is TIDEMARK_URL. `clients/check.sh` starts one."""

from __future__ import annotations

import asyncio
import os
import random
from datetime import UTC, datetime

import httpx
import pytest
from proxy import LOST, PASSED, Fault, Proxy

from tidemark_client import UNSET, AsyncTidemark, FieldError, Pager, Request, Retries, Tidemark, TidemarkProblem, models

STACK = os.environ.get("TIDEMARK_URL", "http://127.0.0.1:3000")
QUICK = Retries(base=0.005)


def new_user() -> str:
    """A user whom no other test uses."""
    return str(2**40 + random.SystemRandom().randrange(2**40))


def client(user: str) -> Tidemark:
    return Tidemark(STACK, user)


def test_a_reader_follows_an_author_and_reads_what_the_author_publishes() -> None:
    reader_id, author_id = new_user(), new_user()
    with client(reader_id) as reader, client(author_id) as author:
        assert reader.follow(author_id, preference=3).preference == 3
        post = author.publish("Hello", body="World", data={"topic": "test"})
        assert post.author == author_id

        items: list[models.PostItem] = []
        while not items:
            items = list(reader.feed())
        assert [(item.id, item.title, item.read) for item in items] == [(post.id, "Hello", False)]
        assert reader.unread().to_dict() == {"total": 1, "authors": [{"author": author_id, "unread": 1}]}
        assert reader.mark_read(models.MarkPosts(posts=[post.id])).to_dict() == {"changed": 1, "total": 0}
        full = reader.get_post(post.id)
        assert (full.body, full.data, full.read) == ("World", {"topic": "test"}, True)
        assert reader.unfollow(author_id).following is False
        author.delete_post(post.id)
        with pytest.raises(TidemarkProblem):
            author.get_post(post.id)


def test_a_pager_returns_every_item_of_several_pages_once() -> None:
    author = new_user()
    with client(author) as publisher, client(new_user()) as reader:
        ids = [publisher.publish(f"Post {n}").id for n in range(7)][::-1]
        pager = reader.posts(author, limit=3)
        assert [item.id for item in pager] == ids
        assert [(len(page.items), page.total) for page in pager.pages()] == [(3, 7), (3, 7), (1, 7)]
        for user in ("11", "12", "13"):
            reader.mute(user)
        assert [entry.user for entry in reader.list_mutes(limit=2)] == ["13", "12", "11"]


def test_a_publish_whose_response_is_lost_is_repeated_with_the_same_key_and_publishes_once() -> None:
    author = new_user()
    with Proxy(STACK, [LOST]) as proxy, Tidemark(proxy.url, author, retries=QUICK) as tidemark:
        post = tidemark.publish("Once")
        assert post.seq == 1
        assert len(proxy.seen) == 2
        assert proxy.seen[0].key and proxy.seen[0].key == proxy.seen[1].key
        assert [item.id for item in tidemark.posts(author)] == [post.id]
        tidemark.publish("Twice")
        assert proxy.seen[-1].key not in (None, proxy.seen[0].key), "another call has another key"


def test_a_notice_whose_response_is_lost_is_published_once() -> None:
    platform = random.SystemRandom().randrange(1, 65_536)
    with Proxy(STACK, [LOST]) as proxy, Tidemark(proxy.url, f"{new_user()} notices:write", retries=QUICK) as tidemark:
        tidemark.publish_notices([platform], "Maintenance")
        assert proxy.seen[0].key and proxy.seen[0].key == proxy.seen[1].key
        assert [notice.title for notice in tidemark.list_notices(platform)] == ["Maintenance"]


def test_each_other_request_with_a_key_whose_response_is_lost_is_repeated_with_the_same_key_and_done_once() -> None:
    reader_id, author, platform = new_user(), new_user(), random.SystemRandom().randrange(1, 65_536)
    with client(f"{author} notices:write") as writer, client(reader_id) as reader:
        reader.follow(author)
        writer.follow(reader_id)
        post = writer.publish("One").id
        notice = writer.publish_notices([platform], "Notice").items[0].id
        while not (groups := reader.get_inbox().page().items):
            pass
        faults: list[Fault | str] = [LOST, PASSED] * 9
        with Proxy(STACK, faults) as proxy, Tidemark(proxy.url, f"{reader_id} notices:write", retries=QUICK) as tidemark:
            assert tidemark.mark_read(models.MarkAll(all_=True)).changed == 1
            assert tidemark.mark_read(models.MarkThrough(author=author, through=1)).changed == 0
            assert tidemark.mark_notices_read(platform, 1).changed == 1
            assert tidemark.edit_notice(notice, "Again", renotify=True).title == "Again"
            assert len(tidemark.edit_notices([notice], "Once more").items) == 1
            assert tidemark.read_inbox_group(groups[0].id).unread == 0
            assert tidemark.read_inbox(datetime.now(UTC)).unread == 0
            tidemark.make_list("Friends")
            tidemark.write_comment(post, "Welcome")
            keys = [request.key for request in proxy.seen]
        assert all(keys) and keys[::2] == keys[1::2] and (len(keys), len(set(keys))) == (18, 9)
        assert [made.name for made in reader.list_lists()] == ["Friends"]
        assert reader.list_comments(post).page().total == 1


def test_a_post_without_a_key_is_not_repeated_after_a_lost_response_and_is_after_a_429() -> None:
    author = new_user()
    faults: list[Fault | str] = [LOST, Fault(429, {"retry-after": "0"})]
    with Proxy(STACK, faults) as proxy, Tidemark(proxy.url, author, retries=QUICK) as tidemark:
        with pytest.raises(httpx.TransportError):
            tidemark.send(Request("POST", "/v1/posts", {"json": {"title": "Perhaps"}}, lambda response: None))
        assert len(proxy.seen) == 1
        tidemark.send(Request("POST", "/v1/posts", {"json": {"title": "Surely"}}, lambda response: None))
        assert len(proxy.seen) == 3
    with client(author) as own:
        assert len(list(own.posts(author))) == 2


def test_a_list_keeps_the_profiles_of_10000_users_and_those_of_its_last_page() -> None:
    loaded = 0

    def load(cursor: str | None) -> models.RelationPage:
        nonlocal loaded
        users = [str(loaded + n) for n in range(1, 101)]
        loaded += 100
        card = {"handle": None, "picture": None}
        return models.RelationPage.from_dict({
            "items": [{"user": user, "since": "2026-11-20T08:00:00.123Z"} for user in users],
            "next_cursor": "next" if loaded < 10_100 else None,
            "profiles": {user: {"name": f"User {user}", **card} for user in users},
        })

    pager: Pager[models.RelationPage, models.RelationEntry] = Pager(load)
    assert all(pager.name(entry.user) == f"User {entry.user}" for entry in pager)
    assert (loaded, len(pager.profiles), pager.name("100"), pager.name("101")) == (10_100, 10_000, "100", "User 101")


@pytest.mark.parametrize("status", [429, 503])
def test_it_retries_after_retry_after(status: int) -> None:
    fault = Fault(status, {"retry-after": "1"})
    with Proxy(STACK, [fault]) as proxy, Tidemark(proxy.url, new_user(), retries=QUICK) as tidemark:
        assert tidemark.unread().total == 0
        first, second = proxy.seen
        assert second.at - first.at >= 1


def test_the_stacks_own_429_is_retried_and_all_requests_succeed() -> None:
    with Proxy(STACK, []) as proxy, Tidemark(proxy.url, new_user()) as tidemark, client(new_user()) as author:
        post, likes = author.publish("Popular").id, 0
        while len(proxy.seen) == likes:
            assert tidemark.like_post(post).liked
            likes += 1


def test_retries_end_with_the_last_problem() -> None:
    fault = Fault(503, {"retry-after": "0"}, b'{"message":"Service Unavailable"}')
    retries = Retries(limit=2, base=0.001)
    with Proxy(STACK, [fault] * 3) as proxy, Tidemark(proxy.url, new_user(), retries=retries) as tidemark:
        with pytest.raises(TidemarkProblem) as raised:
            tidemark.unread()
        problem = raised.value
        assert (problem.status, problem.slug, problem.detail) == (503, "unavailable", "Service Unavailable")
        assert len(proxy.seen) == 3


def test_a_retry_after_that_is_too_long_is_a_problem_at_once() -> None:
    fault = Fault(429, {"retry-after": "3600"})
    with Proxy(STACK, [fault]) as proxy, Tidemark(proxy.url, new_user()) as tidemark:
        with pytest.raises(TidemarkProblem) as raised:
            tidemark.unread()
        assert (raised.value.slug, raised.value.retry_after, len(proxy.seen)) == ("too-many-requests", 3600, 1)


def test_a_404_a_422_and_a_400_are_typed_problems() -> None:
    user = new_user()
    with client(user) as tidemark:
        with pytest.raises(TidemarkProblem) as missing:
            tidemark.get_post(f"{user}-1")
        assert (missing.value.status, missing.value.type, missing.value.slug) == (404, "/problems/not-found", "not-found")
        assert missing.value.request_id and missing.value.title and missing.value.detail
        with pytest.raises(TidemarkProblem) as own:
            tidemark.follow(user)
        assert (own.value.status, own.value.slug, own.value.errors) == (422, "self-follow", [])
        with pytest.raises(TidemarkProblem) as invalid:
            list(tidemark.feed(limit=1000))
        assert (invalid.value.status, invalid.value.errors) == (400, [FieldError("limit", "must be 1 to 100")])


def test_a_token_can_be_a_function_and_a_missing_token_is_a_problem() -> None:
    user, calls = new_user(), []
    with Tidemark(STACK, lambda: calls.append(1) or user) as tidemark:  # type: ignore[func-returns-value]
        me = tidemark.get_me()
        assert (me.id, me.profile, len(calls)) == (user, None, 1)
    with Tidemark(STACK) as anonymous, pytest.raises(TidemarkProblem) as raised:
        anonymous.unread()
    assert raised.value.slug == "unauthorized"


def test_the_asyncio_client_does_the_same() -> None:
    async def run() -> None:
        reader_id, author_id = new_user(), new_user()

        async def token() -> str:
            return author_id

        with Proxy(STACK, [LOST]) as proxy:
            async with AsyncTidemark(STACK, reader_id) as reader, AsyncTidemark(proxy.url, token, retries=QUICK) as author:
                assert (await reader.follow(author_id)).following
                post = await author.publish("Hello")
                assert post.seq == 1 and len(proxy.seen) == 2 and post.data is None
                items: list[models.PostItem] = []
                while not items:
                    items = [item async for item in reader.feed(limit=1)]
                assert [item.id for item in items] == [post.id]
                assert [item.score for item in items] == [UNSET] and "score=UNSET" in repr(items[0])
                for user in ("11", "12", "13"):
                    await reader.mute(user)
                assert [entry.user async for entry in reader.list_mutes(limit=2)] == ["13", "12", "11"]
                with pytest.raises(TidemarkProblem) as raised:
                    await reader.follow(reader_id)
                assert raised.value.slug == "self-follow"

    asyncio.run(run())


def test_a_list_knows_the_names_of_the_users_on_the_pages_that_were_requested() -> None:
    authors = [new_user() for _ in range(3)]
    with client(new_user()) as reader:
        for n, author in enumerate(authors[:2]):
            with client(author) as own:
                own.set_profile(f"Author {n}")
        for author in authors:
            reader.mute(author)
        mutes = reader.list_mutes(limit=1)
        assert [mutes.name(entry.user) for entry in mutes] == [authors[2], "Author 1", "Author 0"]
        assert list(mutes.profiles) == [authors[1], authors[0]]
        assert reader.list_mutes(profiles=False).page().profiles is UNSET


def test_a_list_begins_at_a_cursor_at_an_offset_or_at_what_has_entered_since() -> None:
    author = new_user()
    with client(author) as publisher, client(new_user()) as reader:
        for n in range(1, 6):
            publisher.publish(f"Post {n}")
        first = reader.posts(author, limit=2).page()
        assert first.next_cursor and first.first_cursor
        assert [post.seq for post in reader.posts(author, limit=2, cursor=first.next_cursor)] == [3, 2, 1]
        for n in range(6, 9):
            publisher.publish(f"Post {n}")
        assert [post.seq for post in reader.posts(author, limit=2, since=first.first_cursor)] == [8, 7, 6]
        for user in ("11", "12", "13", "14"):
            reader.follow(user)
        me = reader.get_me().id
        assert [entry.user for entry in reader.list_following(me, offset=1, limit=1)] == ["13", "12", "11"]


def test_a_follow_without_a_preference_leaves_the_preference() -> None:
    with client(new_user()) as reader:
        assert reader.follow("11", preference=3).preference == 3
        assert reader.follow("11").preference == 3
