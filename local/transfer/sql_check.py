"""Moves a PostgreSQL database into a stack by the SQL of docs/in-and-out.md, and compares both: `make sql-check`.

It starts a PostgreSQL and a stack of its own, in temporary folders, and installs PostgreSQL if it is missing. Exit status: 0 if
there is no difference, 1 with the differences otherwise.
"""

import argparse
import glob
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

HERE = Path(__file__).resolve().parent
PATIENCE_SECONDS = 900

# Ids are those of a legacy system: authors and readers are the same users. Some titles and contents are strange.
LOAD = """
SELECT setseed(0.5);
CREATE TABLE users (id bigint PRIMARY KEY, name text);
CREATE TABLE blogs (id bigint PRIMARY KEY, user_id bigint NOT NULL, title text, content text, created_at timestamptz NOT NULL);
CREATE TABLE follows (user_id bigint, author_id bigint, created_at timestamptz NOT NULL, PRIMARY KEY (user_id, author_id));
CREATE TABLE blog_reads (user_id bigint, blog_id bigint);
CREATE TABLE blog_likes (user_id bigint, blog_id bigint, created_at timestamptz NOT NULL, PRIMARY KEY (user_id, blog_id));
INSERT INTO users SELECT id, CASE WHEN id % 10 > 0 THEN 'User "' || id || E'"\\t\\u00fc' END FROM generate_series(1, :users) id;
INSERT INTO blogs SELECT id, 1 + floor(random() * random() * :users), CASE WHEN id % 50 > 0 THEN 'Blog ' || id || E' \\\\ "x"' ELSE repeat('y', 300) END,
    CASE WHEN id % 999 = 998 THEN repeat(E'\\u00fc', 40000) WHEN id % 3 > 0 THEN repeat(E'line\\n', (id % 40)::int) END,
    timestamptz '2025-01-01' + floor(random() * 300) * interval '1 day' FROM generate_series(1, :users * 10) id;
INSERT INTO follows SELECT 1 + floor(random() * :users), 1 + floor(random() * random() * :users), timestamptz '2025-01-01' + random() * interval '300 days'
    FROM generate_series(1, :users * 100) ON CONFLICT DO NOTHING;
INSERT INTO blog_reads SELECT f.user_id, b.id FROM follows f JOIN blogs b ON b.user_id = f.author_id WHERE random() < 0.1;
INSERT INTO blog_reads SELECT 1 + floor(random() * :users), 1 + floor(random() * :users * 10) FROM generate_series(1, :users * 2);
INSERT INTO blog_likes SELECT 1 + floor(random() * :users), 1 + floor(random() * :users * 10), timestamptz '2025-12-01' + id * interval '1 second'
    FROM generate_series(1, :users * 5) id ON CONFLICT DO NOTHING;
"""

FOLLOWS = "SELECT author_id FROM follows WHERE user_id = :user AND author_id <> :user"
# Unread: posts of followed authors from after the follow that are not read. A post has milliseconds here.
UNREAD = """SELECT b.user_id, count(*) FROM follows f JOIN blogs b ON b.user_id = f.author_id
    WHERE f.user_id = :user AND f.author_id <> :user AND date_trunc('milliseconds', b.created_at) > date_trunc('milliseconds', f.created_at)
    AND NOT EXISTS (SELECT FROM blog_reads r WHERE r.user_id = :user AND r.blog_id = b.id) GROUP BY b.user_id"""
TITLES = """SELECT row_to_json(t) FROM (SELECT left(title, 200) AS title, CASE WHEN octet_length(content) > 65536 THEN left(content, 16384) ELSE content END AS body
    FROM blogs WHERE user_id = :user ORDER BY created_at, id) t"""
LIKED = "SELECT count(*) FROM blog_likes WHERE user_id = :user"


class Postgres:
    def __init__(self, folder):
        self.bin = self.find()
        self.folder = Path(folder)
        self.as_other = []
        if os.geteuid() == 0:
            # PostgreSQL refuses to run as root.
            shutil.chown(folder, "postgres")
            self.as_other = ["runuser", "-u", "postgres", "--"]
        self.run("initdb", "--auth=trust", "--username=check", "--encoding=UTF8", "--locale=C.UTF-8", "-D", self.folder / "db")
        options = f"-c listen_addresses='' -c unix_socket_directories={folder} -c fsync=off"
        self.run("pg_ctl", "-D", self.folder / "db", "-o", options, "-l", self.folder / "log", "-w", "start")

    @staticmethod
    def find():
        if subprocess.run([HERE.parent / "setup.sh", "postgresql"]).returncode:
            sys.exit("sql-check: PostgreSQL is missing")
        return Path(sorted(glob.glob("/usr/lib/postgresql/*/bin/initdb"))[-1]).parent

    def run(self, name, *arguments):
        done = subprocess.run([*self.as_other, self.bin / name, *arguments], capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"sql-check: {name}: {done.stdout}{done.stderr}")

    def psql(self, sql=None, file=None, **variables):
        command = [self.bin / "psql", "-qAtX", "-v", "ON_ERROR_STOP=1", "-h", self.folder, "-U", "check"]
        for name, value in variables.items():
            command += ["-v", f"{name}={value}"]
        command += ["-f", file or "-", "postgres"]
        done = subprocess.run(command, input=sql, capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"sql-check: psql: {done.stderr}")
        return done.stdout

    def rows(self, sql, **variables):
        return [line.split("|") for line in self.psql(sql, **variables).splitlines()]

    def stop(self):
        self.run("pg_ctl", "-D", self.folder / "db", "-m", "immediate", "stop")


class Stack:
    def __init__(self, binaries, folder):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.address = f"127.0.0.1:{free.getsockname()[1]}"
        environment = {**os.environ, "TIDEMARK_ADDR": self.address, "TIDEMARK_DATA": str(folder)}
        self.log = open(Path(folder) / "log", "w")
        self.process = subprocess.Popen([Path(binaries) / "tidemark-local"], env=environment, stdout=self.log, stderr=self.log)
        self.until("the stack starts", lambda: self.get("/v1/health")["status"] == "ok")

    def get(self, path, user=1):
        request = urllib.request.Request(f"http://{self.address}{path}", headers={"Authorization": f"Bearer {user}"})
        with urllib.request.urlopen(request, timeout=60) as response:
            return json.load(response)

    def walk(self, path, user):
        cursor, items = "", []
        while cursor is not None:
            page = self.get(f"{path}{'&' if '?' in path else '?'}limit=100{cursor and '&cursor=' + cursor}", user)
            items += page["items"]
            cursor = page["next_cursor"]
        return items

    def until(self, what, holds):
        started = time.monotonic()
        while time.monotonic() - started < PATIENCE_SECONDS:
            try:
                if holds():
                    return
            except OSError:
                if self.process.poll() is not None:
                    break
            time.sleep(0.2)
        sys.exit(f"sql-check: not in time: {what}")

    def stop(self):
        self.process.send_signal(signal.SIGINT)
        self.process.wait(60)


def compare(postgres, stack, user):
    """The differences of one user."""
    found = []

    def same(what, here, there):
        if here != there:
            found.append(f"user {user}, {what}: {here!r} here, {there!r} in the database")

    there = sorted(int(author) for author, in postgres.rows(FOLLOWS, user=user))
    same("follows", sorted(int(item["user"]) for item in stack.walk(f"/v1/users/{user}/following", user)), there)
    unread = {author: int(count) for author, count in postgres.rows(UNREAD, user=user)}
    body = stack.get("/v1/unread", user)
    same("unread", {one["author"]: one["unread"] for one in body["authors"]}, unread)
    same("unread posts", len(stack.walk("/v1/feed?status=unread", user)), sum(unread.values()))
    posts = [json.loads(line) for line in postgres.psql(TITLES, user=user).splitlines()]
    here = [{"title": item["title"], "body": item["body"]} for item in stack.walk(f"/v1/authors/{user}/posts?include=body", user)]
    same("posts", here[::-1], posts)
    same("likes", len(stack.walk("/v1/me/likes", user)), int(postgres.psql(LIKED, user=user)))
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--binaries", required=True)
    parser.add_argument("--users", type=int, default=300)
    parser.add_argument("--sample", type=int, default=100)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as database, tempfile.TemporaryDirectory() as data:
        postgres, stack = Postgres(database), Stack(options.binaries, data)
        try:
            postgres.psql(LOAD, users=options.users)
            started = time.monotonic()
            file = Path(data) / "all.ndjson"
            file.write_text(postgres.psql(file=HERE / "sql" / "postgresql.sql"))
            written = time.monotonic()
            command = [Path(options.binaries) / "transfer", "--addr", stack.address, "import", file]
            done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
            imported = time.monotonic()
            stack.get("/v1/feed", 1)
            print(f"written in {written - started:.1f} s, imported in {imported - written:.1f} s, first page after {time.monotonic() - started:.1f} s")
            print(done.stdout.splitlines()[-1])
            if done.returncode:
                sys.exit(f"sql-check: the import found bad lines:\n{done.stdout[:2000]}")
            stack.until("no work is left", lambda: stack.get("/_local/status")["idle"])
            users = random.sample(range(1, options.users + 1), min(options.sample, options.users))
            differences = [difference for user in users for difference in compare(postgres, stack, user)]
            print(f"{len(users)} users compared, {len(differences)} differences")
            print("".join(f"{difference}\n" for difference in differences[:20]), end="")
            return 1 if differences else 0
        finally:
            stack.stop()
            postgres.stop()


if __name__ == "__main__":
    sys.exit(main())
