#!/usr/bin/env python3
"""A search index of all posts in SQLite, kept up to date by the events of a local stack. docs/events.md describes them."""

import argparse
import json
import os
import sqlite3
import sys
import time
import urllib.parse
import urllib.request

SCHEMA = """
CREATE TABLE IF NOT EXISTS posts (post TEXT PRIMARY KEY, author TEXT NOT NULL, revision INTEGER NOT NULL, live INTEGER NOT NULL);
CREATE INDEX IF NOT EXISTS by_author ON posts (author);
CREATE VIRTUAL TABLE IF NOT EXISTS texts USING fts5 (post UNINDEXED, title, body);
CREATE TABLE IF NOT EXISTS erased (user TEXT PRIMARY KEY);
CREATE TABLE IF NOT EXISTS progress (one INTEGER PRIMARY KEY CHECK (one = 1), last TEXT NOT NULL);
"""


class Index:
    """The index. Events may be applied in any order and any number of times."""

    def __init__(self, path):
        self.db = sqlite3.connect(path)
        self.db.executescript(SCHEMA)

    def last(self):
        """The id of the last event that was applied in order, or None."""
        row = self.db.execute("SELECT last FROM progress").fetchone()
        return row and row[0]

    def apply_page(self, events):
        """Applies events and notes the last of them, together."""
        with self.db:
            for event in events:
                self.apply(event["detail-type"], event["detail"])
            if events:
                self.db.execute("INSERT OR REPLACE INTO progress VALUES (1, ?)", (events[-1]["id"],))

    def apply(self, kind, detail):
        if kind == "user.erased":
            self.erase(detail["user"])
        elif kind in ("post.published", "post.edited", "post.deleted"):
            self.post(detail, kind != "post.deleted")

    def erase(self, user):
        self.db.execute("INSERT OR IGNORE INTO erased VALUES (?)", (user,))
        self.db.execute("DELETE FROM texts WHERE post IN (SELECT post FROM posts WHERE author = ?)", (user,))
        self.db.execute("DELETE FROM posts WHERE author = ?", (user,))

    def post(self, detail, live):
        post, author, revision = detail["post"], detail["author"], detail["revision"]
        if self.db.execute("SELECT 1 FROM erased WHERE user = ?", (author,)).fetchone():
            return
        known = self.db.execute("SELECT revision FROM posts WHERE post = ?", (post,)).fetchone()
        if known and known[0] >= revision:
            return
        # A tombstone stays: an older event may still arrive.
        self.db.execute("INSERT OR REPLACE INTO posts VALUES (?, ?, ?, ?)", (post, author, revision, live))
        self.db.execute("DELETE FROM texts WHERE post = ?", (post,))
        if live:
            self.db.execute("INSERT INTO texts VALUES (?, ?, ?)", (post, detail["title"], detail.get("body") or ""))

    def search(self, words, limit=100):
        """Ids of the posts that have all words, the best first."""
        query = " ".join('"' + word.replace('"', '""') + '"' for word in words.split())
        if not query:
            return []
        rows = self.db.execute("SELECT post FROM texts WHERE texts MATCH ? ORDER BY rank LIMIT ?", (query, limit))
        return [post for (post,) in rows]


def get(url, token=None):
    headers = {"authorization": f"Bearer {token}"} if token else {}
    with urllib.request.urlopen(urllib.request.Request(url, headers=headers)) as response:
        return json.load(response)


def catch_up(index, base):
    """Applies all events that have left since the last call. Returns how many."""
    last = index.last()
    query = "?" + urllib.parse.urlencode({"after": last}) if last else ""
    events = get(f"{base}/_local/events{query}")["items"]
    index.apply_page(events)
    return len(events)


def visible(base, user, posts):
    """Those of these posts that the user may see, as the API returns them."""
    if not posts:
        return []
    query = urllib.parse.urlencode([("post", post) for post in posts])
    return get(f"{base}/v1/posts?{query}", user)["items"]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--url", default=os.environ.get("URL", "http://127.0.0.1:3000"), help="the stack")
    parser.add_argument("--index", default="search.sqlite", help="the file of the index")
    commands = parser.add_subparsers(dest="command", required=True)
    follow = commands.add_parser("follow", help="apply events until interrupted")
    follow.add_argument("--once", action="store_true", help="end when all are applied")
    search = commands.add_parser("search", help="search the posts that a user may see")
    search.add_argument("words")
    search.add_argument("--as", dest="user", required=True, help="the id of the user")
    arguments = parser.parse_args()
    index = Index(arguments.index)
    if arguments.command == "search":
        for post in visible(arguments.url, arguments.user, index.search(arguments.words)):
            print(f"{post['id']}  {post['title']}")
        return
    while True:
        applied = catch_up(index, arguments.url)
        if applied:
            print(f"{applied} events", file=sys.stderr)
        elif arguments.once:
            return
        else:
            time.sleep(1)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        pass
