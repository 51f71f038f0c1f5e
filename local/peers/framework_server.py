"""Serves feeds of stream-framework over HTTP: `framework_server.py <port> <port of Redis>`. It runs on Python 3.6.

The framework is a library. This is the least that serves it: who follows whom is in memory, and a fan-out runs inside the request (eager
tasks of Celery) instead of in workers.
"""

import itertools
import sys

from celery import Celery
from server import Handler, serve
from stream_framework import settings

tasks = Celery()
tasks.conf.CELERY_ALWAYS_EAGER = True
tasks.set_default()
settings.STREAM_REDIS_CONFIG = {"default": {"host": "127.0.0.1", "port": int(sys.argv[2]), "db": 0, "password": None}}

from stream_framework.activity import Activity  # noqa: E402
from stream_framework.feed_managers.base import FanoutPriority, Manager  # noqa: E402
from stream_framework.feeds.redis import RedisFeed  # noqa: E402
from stream_framework.verbs import register  # noqa: E402
from stream_framework.verbs.base import Verb  # noqa: E402

FOLLOWERS, NUMBERS = {}, itertools.count(1)


class Post(Verb):
    id, infinitive, past_tense = 5, "post", "posted"


class Timeline(RedisFeed):
    key_format, max_length = "timeline:%(user_id)s", 1000


class Home(RedisFeed):
    key_format, max_length = "home:%(user_id)s", 1000


class Feeds(Manager):
    feed_classes, user_feed_class = {"home": Home}, Timeline

    def get_user_follower_ids(self, user_id):
        return {FanoutPriority.HIGH: list(FOLLOWERS.get(user_id, ()))}


class Framework(Handler):
    def page(self, user, body):
        posts = MANAGER.get_feeds(user)["home"][: int(self.path.split("/")[2])]
        return {"items": [{"id": one.object_id, "author": one.actor_id, "created_at": str(one.time), **one.extra_context} for one in posts]}

    def publish(self, user, body):
        post = Activity(user, Post, next(NUMBERS), extra_context=body)
        MANAGER.add_user_activity(user, post)
        return {"id": post.object_id}

    def follow(self, user, body):
        for author in body["authors"]:
            FOLLOWERS.setdefault(author, set()).add(user)
            MANAGER.follow_user(user, author)
        return {}

    def unfollow(self, user, body):
        FOLLOWERS[body["author"]].discard(user)
        MANAGER.unfollow_user(user, body["author"])
        return {}


register(Post)
MANAGER = Feeds()
serve(Framework)
