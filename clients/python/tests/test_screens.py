"""On a running stack, whose address is TIDEMARK_URL: the requests that a screen needs, and the example of a home screen."""

from __future__ import annotations

import asyncio
import os
import pathlib
import random
import subprocess
from collections.abc import Awaitable, Callable

import httpx
import pytest

from tidemark_client import AsyncTidemark, Tidemark, models

STACK = os.environ.get("TIDEMARK_URL", "http://127.0.0.1:3000")
APP = pathlib.Path(os.environ["TIDEMARK_APP"])
TABLE = (pathlib.Path(__file__).parents[3] / "docs/clients.md").read_text().splitlines()

pytestmark = pytest.mark.xdist_group("screens")


class Scene:
    """A reader who follows Ada and Bob. Ada has a post, which Bob likes and comments."""

    def __init__(self) -> None:
        self.reader_id, ada_id, bob_id = (str(2**40 + random.SystemRandom().randrange(2**40)) for _ in range(3))
        self.ada_id, self.platform = ada_id, random.SystemRandom().randrange(1, 65_536)
        self.ada, self.reader = Tidemark(STACK, f"{ada_id} notices:write"), Tidemark(STACK, self.reader_id)
        bob = Tidemark(STACK, bob_id)
        self.ada.set_profile("Ada", handle=f"ada_{ada_id}")
        bob.set_profile("Bob")
        self.reader.set_profile("Reader")
        self.reader.follow_many([ada_id, bob_id])
        bob.follow(ada_id)
        self.post = self.ada.publish("Hello").id
        bob.like_post(self.post)
        bob.write_comment(self.post, "Welcome")
        self.ada.publish_notices([self.platform], "Maintenance", body="At noon")
        while self.reader.unread().total != 1:
            pass


@pytest.fixture(scope="module")
def scene() -> Scene:
    return Scene()


async def home(reader: AsyncTidemark, scene: Scene) -> None:
    feed = reader.feed(own=True, include="counts")
    me, page = await asyncio.gather(reader.get_me(), feed.page())
    assert me.profile and (me.profile.name, me.inbox_unread, page.unread_total) == ("Reader", 0, 1)
    shown = [(feed.name(it.author), it.title, it.likes, it.comments) for it in page.items]
    assert shown == [("Ada", "Hello", 1, 1)]


async def profile(reader: AsyncTidemark, scene: Scene) -> None:
    ada, posts = await asyncio.gather(reader.get_user(scene.ada_id), reader.posts(scene.ada_id, include="counts").page())
    assert ada.profile and (ada.profile.name, ada.counters.followers, ada.relation.following) == ("Ada", 2, True)
    assert ada.profiles and [ada.profiles[user].name for user in ada.known_followers.users] == ["Bob"]
    assert [(it.title, it.likes) for it in posts.items] == [("Hello", 1)]


async def profile_by_handle(reader: AsyncTidemark, scene: Scene) -> None:
    ada = await reader.get_user_by_handle(f"ada_{scene.ada_id}")
    assert len((await reader.posts(ada.id, include="counts").page()).items) == 1


async def followers(reader: AsyncTidemark, scene: Scene) -> None:
    of_ada = reader.list_followers(scene.ada_id, relation=True)
    shown = [(of_ada.name(it.user), it.relation and it.relation.following) for it in (await of_ada.page()).items]
    assert shown == [("Bob", True), ("Reader", False)]


async def post(reader: AsyncTidemark, scene: Scene) -> None:
    comments, likes = reader.list_comments(scene.post), reader.list_post_likes(scene.post)
    shown, texts, likers = await asyncio.gather(reader.get_post(scene.post), comments.page(), likes.page())
    assert shown.profiles and (shown.profiles[shown.author].name, shown.likes, shown.comments) == ("Ada", 1, 1)
    assert [(comments.name(it.author), it.text) for it in texts.items] == [("Bob", "Welcome")]
    assert [likes.name(it.user) for it in likers.items] == ["Bob"]


async def notices(reader: AsyncTidemark, scene: Scene) -> None:
    listed = reader.list_notices(scene.platform, include="body").page()
    page, counts = await asyncio.gather(listed, reader.count_notices([scene.platform]))
    assert [(it.title, it.body, it.read) for it in page.items] == [("Maintenance", "At noon", False)]
    assert counts.unread == 1


@pytest.mark.parametrize("show", [home, profile, profile_by_handle, followers, post, notices])
def test_a_screen_needs_what_the_table_says(show: Callable[[AsyncTidemark, Scene], Awaitable[None]], scene: Scene) -> None:
    """Compares with the table in docs/clients.md. Requests that begin before a response is there are one round trip."""
    requests, trips, responded = 0, 0, True

    async def requested(_: httpx.Request) -> None:
        nonlocal requests, trips, responded
        requests, trips, responded = requests + 1, trips + responded, False

    async def response(_: httpx.Response) -> None:
        nonlocal responded
        responded = True

    async def run() -> None:
        http = httpx.AsyncClient(event_hooks={"request": [requested], "response": [response]})
        async with AsyncTidemark(STACK, scene.reader_id, http=http) as reader:
            await show(reader, scene)

    asyncio.run(run())
    name = show.__name__.replace("_", " ")
    row = next(line for line in TABLE if line.startswith(f"| {name} |"))
    assert [int(cell) for cell in row.split("|")[-4:-2]] == [requests, trips], row


def test_the_example_of_a_home_screen_shows_names_likes_and_live_counts() -> None:
    scene = Scene()
    env = {**os.environ, "TIDEMARK_URL": STACK, "TIDEMARK_TOKEN": scene.reader_id}
    command = [APP / "venv/bin/python", APP / "home.py"]
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True) as example:
        try:
            assert example.stdout
            lines = map(str.strip, example.stdout)

            def until(expected: str, before: str | None = None) -> None:
                """A count may be told twice."""
                while (line := next(lines)) == before:
                    pass
                assert line == expected

            until("Ada: Hello (1 likes, unread)")
            until("1 unread")
            scene.ada.publish("Again")
            until("2 unread", "1 unread")
            scene.reader.mark_read(models.MarkAll(all_=True))
            until("0 unread", "2 unread")
        finally:
            example.kill()
