#!/usr/bin/env python3
"""Checks that an API works: follows, publishes, reads, and takes both back. Prints one line for each step.

    make smoke                                       # the stack of `make run` at TIDEMARK_ADDR, as users 1 and 2
    make smoke URL=https://… TOKEN=… [TOKEN2=…]      # any deployment

TOKEN is the reader's, TOKEN2 the author's; both are read from the environment. Without TOKEN2 nothing is followed, and the reader is the author.
With TOKEN_URL, the issuer gives the tokens to CLIENT_ID with CLIENT_SECRET, and to CLIENT_ID2 with CLIENT_SECRET2 if they are set (grant
`client_credentials`). The query of TOKEN_URL has what the issuer needs beside them, such as `?scope=feed`. At the end, in any case, the post is deleted, and the author is unfollowed if the reader did not follow the author before. The number
of the post stays used. Exit status: 0 if every response was right, 1 at the first wrong one, 2 if the server cannot be reached.

Needs only Python 3.9.
"""

import argparse
import base64
import http.client
import json
import os
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
import uuid

READINGS = 50
DELIVERED_WITHIN = 30.0  # seconds
TIMEOUT = 15.0  # seconds


class Wrong(Exception):
    """A response that is not as expected."""


class Response:
    def __init__(self, status, headers, body):
        self.status, self.headers, self.text = status, headers, body.decode("utf-8", "replace")
        try:
            self.body = json.loads(self.text)
        except ValueError:
            self.body = None

    def __getitem__(self, name):
        if not isinstance(self.body, dict) or name not in self.body:
            raise Wrong(f"the body has no `{name}`: {self.text[:200]}")
        return self.body[name]


class Api:
    def __init__(self, url):
        parts = urllib.parse.urlsplit(url if "://" in url else f"http://{url}")
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise SystemExit(f"smoke: {url} is not a base URL, such as https://abc.execute-api.eu-central-1.amazonaws.com")
        kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        self.connection = kind(parts.hostname, parts.port, timeout=TIMEOUT)
        self.base = parts.path.rstrip("/")

    def send(self, token, method, path, body=None, headers=()):
        headers = {"Accept": "application/json", **dict(headers)}
        if token:
            headers["Authorization"] = token if " " in token.strip() and token.lower().startswith("bearer ") else f"Bearer {token}"
        if body is not None:
            headers["Content-Type"] = "application/json"
        text = None if body is None else json.dumps(body)
        for attempt in (1, 2):
            try:
                self.connection.request(method, self.base + path, text, headers)
                response = self.connection.getresponse()
                return Response(response.status, response.headers, response.read())
            except (http.client.RemoteDisconnected, ConnectionResetError, BrokenPipeError):
                # The server closed an idle connection. Every request here may be repeated.
                self.connection.close()
                if attempt == 2:
                    raise


class Smoke:
    def __init__(self, api, reader, author):
        self.api, self.reader, self.author = api, reader, author
        self.request, self.post = "", None
        # The changes to take back at the end: name, token, path, expected status.
        self.undo = []

    def call(self, token, method, path, status=200, **more):
        """Sends a request. Any other status is wrong."""
        self.request = f"{method} {path}"
        response = self.api.send(token, method, path, **more)
        if response.status != status:
            raise Wrong(f"status {response.status} instead of {status}: {response.text[:300]}")
        return response

    def problem(self, path, status, slug):
        response = self.call(self.reader, "GET", path, status)
        kind, media = str(response["type"]).rsplit("/", 1)[-1], response.headers.get("content-type", "")
        if kind != slug or not media.startswith("application/problem+json"):
            raise Wrong(f"the problem is {kind} ({media}) instead of {slug}: {response.text[:300]}")
        return f"{status} {kind}"

    def run(self):
        """The steps in order: a name, and a function that returns what to print."""
        yield "health", self.health
        yield "reader", self.who
        yield "profile", self.profile
        yield "unknown route", lambda: self.problem("/v1/no-such-route", 404, "not-found")
        yield "wrong id", lambda: self.problem("/v1/posts/no-post-id", 400, "invalid-request")
        yield "no token", self.no_token
        if self.author:
            yield "follow", self.follow
        yield "publish", self.publish
        yield "post", self.read_post
        if self.author:
            yield "feed by time", self.feed_by_time
            yield "feed ranked", self.feed_ranked
            yield "unread", self.unread
        else:
            yield "own posts", self.own_posts
            yield "feed by time", lambda: self.page("/v1/feed?limit=5")
            yield "feed ranked", lambda: self.page("/v1/feed?limit=5&order=ranked")
            yield "unread", lambda: f"{self.call(self.reader, 'GET', '/v1/unread')['total']} unread"
        yield "notices", self.notices
        yield "latency", self.latency

    def health(self):
        response = self.call(None, "GET", "/v1/health")
        if response["status"] != "ok":
            raise Wrong(response.text[:300])
        return response.text

    def who(self):
        self.reader_id = self.author_id = self.call(self.reader, "GET", "/v1/me")["id"]
        if not self.author:
            return f"{self.reader_id}, who is the author too (no TOKEN2: nothing is followed)"
        self.author_id = self.call(self.author, "GET", "/v1/me")["id"]
        if self.author_id == self.reader_id:
            raise Wrong(f"both tokens are of user {self.reader_id}, and nobody follows oneself")
        return f"{self.reader_id}, author {self.author_id}"

    def profile(self):
        user = self.call(self.reader, "GET", f"/v1/users/{self.author_id}")
        if user["id"] != self.author_id:
            raise Wrong(f"the id is {user['id']} instead of {self.author_id}")
        return (user["profile"] or {}).get("name") or "no profile yet"

    def no_token(self):
        self.call(None, "GET", "/v1/feed", 401)
        return "401"

    def follow(self):
        path = f"/v1/following/{self.author_id}"
        before = self.call(self.reader, "GET", f"/v1/relations/{self.author_id}")["following"]
        if not before:
            self.undo.insert(0, ("unfollow", self.reader, path, 200))
        if self.call(self.reader, "PUT", path)["following"] is not True:
            raise Wrong("`following` is not true")
        return f"{self.reader_id} follows {self.author_id}" + (" (also before; stays so)" if before else "")

    def publish(self):
        body = {"title": "Smoke test", "body": "This post is deleted within seconds."}
        key = {"Idempotency-Key": str(uuid.uuid4())}
        self.published = time.monotonic()
        self.post = self.call(self.author or self.reader, "POST", "/v1/posts", 201, body=body, headers=key)["id"]
        self.undo.insert(0, ("delete", self.author or self.reader, f"/v1/posts/{self.post}", 204))
        return self.post

    def read_post(self):
        post = self.call(self.reader, "GET", f"/v1/posts/{self.post}")
        if post["title"] != "Smoke test" or post["author"] != self.author_id:
            raise Wrong(post.text[:300])
        return f"read: {json.dumps(post['read'])}"

    def page(self, path):
        """The items of a page. Those of the post alone if it is there."""
        page = self.call(self.reader, "GET", path)
        mine = [item for item in page["items"] if item["id"] == self.post]
        return mine[0] if mine else f"{len(page['items'])} items"

    def own_posts(self):
        if not isinstance(self.page(f"/v1/authors/{self.author_id}/posts"), dict):
            raise Wrong(f"{self.post} is not among the newest posts of its author")
        return f"{self.post} is on the first page"

    def feed_by_time(self):
        while not isinstance(self.page("/v1/feed"), dict):
            if time.monotonic() > self.published + DELIVERED_WITHIN:
                raise Wrong(f"{self.post} is not on the first page after {DELIVERED_WITHIN:.0f} s")
            time.sleep(0.1)
        return f"{self.post} is on the first page, {time.monotonic() - self.published:.1f} s after its publish"

    def feed_ranked(self):
        # A reader with many posts of a higher score has this one further down.
        item = self.page("/v1/feed?order=ranked&limit=100")
        return f"{self.post} has score {item['score']:.1f}" if isinstance(item, dict) else item

    def unread(self):
        own = self.call(self.reader, "GET", f"/v1/unread/{self.author_id}")["unread"]
        total = self.call(self.reader, "GET", "/v1/unread")["total"]
        if own < 1 or total < own:
            raise Wrong(f"{own} unread of the author, {total} in all")
        return f"{total}, of them {own} of {self.author_id}"

    def notices(self):
        self.request = "GET /v1/notices?platform=1"
        if self.api.send(self.reader, "GET", "/v1/notices?platform=1").status == 403:
            return self.problem("/v1/notices?platform=1", 403, "forbidden") + ": the token does not name platform 1"
        counts = self.call(self.reader, "GET", "/v1/notices/unread?platform=1")
        return f"{counts['unread']} unread on platform 1"

    def latency(self):
        took = []
        for _ in range(READINGS):
            started = time.monotonic()
            self.call(self.reader, "GET", "/v1/feed")
            took.append((time.monotonic() - started) * 1000)
        took.sort()
        p50, p95 = (took[round(share * (READINGS - 1))] for share in (0.5, 0.95))
        return f"{READINGS} feeds: p50 {p50:.1f} ms, p95 {p95:.1f} ms"


def token_of(url, client, secret):
    """A token that the issuer gives to a client (RFC 6749, section 4.4)."""
    address, _, query = url.partition("?")
    form = urllib.parse.urlencode([("grant_type", "client_credentials"), *urllib.parse.parse_qsl(query)])
    login = ":".join(urllib.parse.quote(text, safe="") for text in (client, secret))
    headers = {"Authorization": f"Basic {base64.b64encode(login.encode()).decode()}", "Accept": "application/json"}
    try:
        with urllib.request.urlopen(urllib.request.Request(address, form.encode(), headers), timeout=TIMEOUT) as response:
            return json.load(response)["access_token"]
    except (OSError, http.client.HTTPException, ValueError, KeyError) as error:
        raise SystemExit(f"smoke: {address} gives no token to {client}: {error}") from error


def tokens(variables):
    """The tokens of reader and author. They are no arguments, because every user of the machine can read those."""
    if url := variables.get("TOKEN_URL"):
        clients = [(variables.get(f"CLIENT_ID{which}"), variables.get(f"CLIENT_SECRET{which}", "")) for which in ("", "2")]
        if not clients[0][0]:
            raise SystemExit("smoke: TOKEN_URL needs CLIENT_ID and CLIENT_SECRET")
        return [token_of(url, *client) if client[0] else None for client in clients]
    reader, author = variables.get("TOKEN"), variables.get("TOKEN2")
    return [reader, author] if reader else ["1", author or "2"]


def main():
    options = argparse.ArgumentParser(description="Checks an API. Takes back what it does.")
    options.add_argument("url", nargs="?", default=os.environ.get("TIDEMARK_ADDR") or "127.0.0.1:3000")
    given = options.parse_args()
    smoke = Smoke(Api(given.url), *tokens(os.environ))
    status = 0
    print(f"== {given.url}")
    try:
        for name, step in smoke.run():
            smoke.request = ""
            try:
                print(f"ok     {name:14} {step()}", flush=True)
            except Wrong as wrong:
                print(f"WRONG  {name:14} {smoke.request}: {wrong}", flush=True)
                status = 1
                break
            except (OSError, http.client.HTTPException) as error:
                print(f"FAILED {name:14} {smoke.request}: {error or type(error).__name__}", flush=True)
                status = 2
                break
    finally:
        for name, token, path, expected in smoke.undo:
            try:
                smoke.call(token, "DELETE", path, expected)
                print(f"ok     {name:14} {path}")
            except (Wrong, OSError, http.client.HTTPException) as error:
                print(f"WRONG  {name:14} DELETE {path}: {error}. Do it by hand.")
                status = status or 1
    print("all responses are right" if status == 0 else "smoke: see the line above that does not begin with ok")
    return status


if __name__ == "__main__":
    sys.exit(main())
