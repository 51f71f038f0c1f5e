#!/usr/bin/env python3
"""Tests of the search index: on events in any order, and against a stack if URL names one."""

import itertools
import json
import os
import time
import unittest
import urllib.request

from search_index import Index, catch_up, visible


def event(kind, **detail):
    subject = detail.get("post") or detail["user"]
    detail["id"] = f"{kind}:{subject}:{detail['revision']}"
    return {"id": detail["id"], "detail-type": kind, "detail": detail}


def published(post, title, body=None, revision=1, kind="post.published"):
    author = post.split("-")[0]
    return event(kind, post=post, author=author, title=title, body=body, revision=revision)


class AnyOrder(unittest.TestCase):
    def test_every_order_of_repeated_events_gives_the_same_index(self):
        edited = published("2-1", "green apples", "fresh", 2, "post.edited")
        deleted = event("post.deleted", post="2-2", author="2", revision=2)
        events = [published("2-1", "red apples"), edited, published("2-2", "red cherries"), deleted,
                  published("3-1", "red plums"), event("user.erased", user="3", revision=4294967295)]
        for order in itertools.permutations(events):
            index = Index(":memory:")
            for one in order:
                index.apply_page([one, order[0]])
            found = {words: index.search(words) for words in ("apples", "fresh", "red", "cherries", "plums", "")}
            self.assertEqual(found, {"apples": ["2-1"], "fresh": ["2-1"], "red": [], "cherries": [], "plums": [], "": []})

    def test_words_of_a_search_are_words_and_no_operators(self):
        index = Index(":memory:")
        index.apply_page([published("2-1", 'a "quoted" NEAR title')])
        for words in ('"quoted"', "NEAR", "title a", "*", "a OR b"):
            index.search(words)
        self.assertEqual(index.search("NEAR title"), ["2-1"])


@unittest.skipUnless(os.environ.get("URL"), "URL names no stack")
class OnAStack(unittest.TestCase):
    base = os.environ.get("URL")

    def call(self, method, path, user, body=None):
        data = json.dumps(body).encode() if body is not None else None
        headers = {"authorization": f"Bearer {user}", "content-type": "application/json"}
        request = urllib.request.Request(self.base + path, data, headers, method=method)
        with urllib.request.urlopen(request) as response:
            return json.loads(response.read() or "null")

    def found(self, index, words, user, wanted):
        """Waits until a search finds these posts."""
        for _ in range(600):
            catch_up(index, self.base)
            posts = [post["id"] for post in visible(self.base, user, index.search(words))]
            if sorted(posts) == sorted(wanted):
                return
            time.sleep(0.1)
        self.fail(f"{words} finds {posts} for {user}, not {wanted}")

    def test_a_search_finds_what_the_user_may_see(self):
        author, reader = (str(time.time_ns() + number) for number in range(2))
        word, index = f"w{author}", Index(":memory:")
        post = self.call("POST", "/v1/posts", author, {"title": "Hello", "body": word})["id"]
        self.found(index, word, reader, [post])
        self.call("PUT", f"/v1/blocks/{reader}", author)
        self.found(index, word, reader, [])
        self.found(index, word, author, [post])
        self.call("PUT", f"/v1/posts/{post}", author, {"title": "Hello"})
        self.found(index, word, author, [])


if __name__ == "__main__":
    unittest.main()
