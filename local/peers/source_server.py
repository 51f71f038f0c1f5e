"""Serves the sequences of two source designs over HTTP: `source_server.py <port> <port of Redis>`. It runs on Python 3.6.

One has a set of unread posts for each reader and author, and a hash of counts. The other has a home feed as a sorted set. What both keep in
SQL is in memory here, and a fan-out runs inside the request instead of in a thread pool. Each command is awaited, as in the sources.
"""

import itertools
import sys
import time

import redis
from server import Handler, serve

FEED, FEED_SECONDS, UNREAD_SECONDS, INFO_SECONDS = 1000, 60 * 3600, 30 * 86400, 7 * 86400
FOLLOWERS, TIMELINES, NUMBERS = {}, {}, itertools.count(1)
STORE = redis.StrictRedis(port=int(sys.argv[2]), decode_responses=True)


def feed_of(user):
    return "focusFeedKey%d" % user


def add_unread(reader, author, post):
    unread, counts = "user:unread:%d:%d" % (reader, author), "user:unread:count:%d" % reader
    STORE.sadd(unread, post)
    STORE.hset(counts, author, int(STORE.hget(counts, author) or 0) + 1)
    STORE.expire(unread, UNREAD_SECONDS)
    STORE.expire(counts, UNREAD_SECONDS)


def add_to_feed(reader, post, at):
    feed = feed_of(reader)
    if not STORE.exists(feed):
        return
    if STORE.zcard(feed) >= FEED:
        STORE.zrem(feed, STORE.zrange(feed, 0, 0)[0])
    STORE.execute_command("ZADD", feed, at, post)
    STORE.expire(feed, FEED_SECONDS)


class Sources(Handler):
    def page(self, user, _body):
        feed = feed_of(user)
        if not STORE.exists(feed):
            posts = [pair for author, readers in FOLLOWERS.items() if user in readers for pair in TIMELINES.get(author, [])]
            for post, at in posts:
                STORE.execute_command("ZADD", feed, at, post)
            STORE.expire(feed, FEED_SECONDS)
        found = STORE.zrevrangebyscore(feed, int(time.time() * 1000), 0, start=0, num=int(self.path.split("/")[2]))
        pipeline = STORE.pipeline(transaction=False)
        for post in found:
            pipeline.hgetall("blog:info:" + post)
        return {"items": [info for info in pipeline.execute() if info]}

    def unread(self, user, _body):
        return STORE.hgetall("user:unread:count:%d" % user)

    def publish(self, user, body):
        post, at = next(NUMBERS), int(time.time() * 1000)
        info = "blog:info:%d" % post
        STORE.hmset(info, {"id": post, "userId": user, "title": body["text"], "createTime": at})
        STORE.expire(info, INFO_SECONDS)
        STORE.sadd("author:blogs:%d" % user, post)
        TIMELINES.setdefault(user, []).append((post, at))
        for reader in list(FOLLOWERS.get(user, ())):
            add_to_feed(reader, post, at)
            add_unread(reader, user, post)
        return {"id": post}

    def follow(self, user, body):
        for author in body["authors"]:
            FOLLOWERS.setdefault(author, set()).add(user)
            for post, at in TIMELINES.get(author, []):
                add_to_feed(user, post, at)
        return {}

    def unfollow(self, user, body):
        FOLLOWERS[body["author"]].discard(user)
        for post, _ in TIMELINES.get(body["author"], []):
            STORE.zrem(feed_of(user), post)
        return {}


serve(Sources)
