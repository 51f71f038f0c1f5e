"""Measures Tidemark beside other systems, with one graph and one client, in alternating rounds: `make peers`.

It installs the peers with npm and pip into target/peers, and PostgreSQL with apt-get. It starts every system in temporary folders, prints
a table, and writes docs/benchmarks/peers.json and peers.svg. A peer that cannot be installed or started is left out, with the reason. Exit
status: 1 if nothing was measured.
"""

import argparse
import contextlib
import json
import os
import platform
import random
import signal
import statistics
import subprocess
import sys
import time
from datetime import datetime, timezone
from http.client import HTTPException
from pathlib import Path
from types import SimpleNamespace

sys.path.insert(0, str(Path(__file__).resolve().parent))

import report  # noqa: E402
from client import Failure, processor_seconds, send_all, visible_after  # noqa: E402
from sides import Bluesky, SourceDesigns, StreamFramework, Tidemark  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
FOLLOWED = 10  # authors of a user, on average
POSTS = 10  # of an author, before the first round
VISIBLE = 12  # posts a round
REQUESTS = {"publish": 60, "page": 400, "page_of_appview": 400, "unread": 1000, "like": 200, "follow": 200, "mark": 400}


def text_of(number):
    return f"Post {number} of this graph. " + "It says what a post of a feed says, in a few plain sentences of no great length. " * 3


def graph_of(options):
    """Who follows whom, and the texts of each author."""
    chance = random.Random(options.seed)
    share = min(1, FOLLOWED / options.authors)
    follows = [[author for author in range(options.authors) if author != user and chance.random() < share] for user in range(options.users)]
    texts = [[text_of(author * POSTS + number) for number in range(POSTS)] for author in range(options.authors)]
    return SimpleNamespace(follows=follows, texts=texts)


def load(side, graph, clients):
    authors = range(len(graph.texts))
    send_all(side.address, [side.profile(author) for author in authors], clients)
    send_all(side.address, [side.follows(user, followed) for user, followed in enumerate(graph.follows) if followed], clients)
    side.settle()
    side.posts = []
    for number in range(POSTS):
        requests = [side.publish(author, graph.texts[author][number]) for author in authors]
        side.posts += [json.loads(body) for _, body in send_all(side.address, requests, clients)]
    side.settle()
    warm = send_all(side.address, [side.page(user) for user in range(len(graph.follows))], clients)
    found = [len(json.loads(body)[side.items]) for _, body in warm]
    short = [user for user, followed in enumerate(graph.follows) if found[user] != min(50, POSTS * len(followed))]
    if short:
        raise Failure(f"the first page of user {short[0]} lacks posts")
    side.settle()


def requests_of(side, operation, graph, options, number):
    """The requests of an operation in a round, and what takes them back. They are the same for every side."""
    chance, count = random.Random(f"{options.seed} {operation} {number}"), REQUESTS[operation]
    users, authors = range(options.users), range(options.authors)
    if operation == "publish":
        return [side.publish(one % options.authors, text_of(f"{number}/{one}")) for one in range(count)], None
    if operation == "like":
        # No user likes a post twice, in all rounds.
        pairs = random.Random(options.seed).sample(range(options.users * len(side.posts)), count * options.rounds)
        return [side.like(*divmod(pair, len(side.posts))) for pair in pairs[number * count : (number + 1) * count]], None
    if operation == "follow":
        pairs = [(user, author) for user in users for author in authors if user != author and author not in graph.follows[user]]
        pairs = chance.sample(pairs, min(count, len(pairs)))
        back = lambda responses: [side.unfollow(*pair, body) for pair, (_, body) in zip(pairs, responses)]  # noqa: E731
        return [side.follow(*pair) for pair in pairs], back
    if operation == "mark":
        return [side.mark(user) for user in chance.sample(users, min(count, options.users))], None
    return [getattr(side, operation)(user) for user in chance.choices(users, k=count)], None


def measure(side, operation, graph, options, number):
    """One operation of a round: processor seconds for 1,000 requests, by program, and latencies."""
    requests, back = requests_of(side, operation, graph, options, number)
    address = side.appview if operation == "page_of_appview" else side.address
    before, client = processor_seconds(side.roots), time.process_time()
    responses = send_all(address, requests, options.clients)
    client = (time.process_time() - client) * 1000 / len(requests)
    side.settle()
    after = processor_seconds(side.roots)
    if back:
        send_all(address, back(responses), options.clients)
        side.settle()
    spent = {program: (seconds - before.get(program, 0)) * 1000 / len(requests) for program, seconds in after.items()}
    return {"cpu_s": sum(spent.values()), "client_cpu_s": client, **percentiles([seconds * 1000 for seconds, _ in responses]), "programs": spent}


def percentiles(times):
    ordered = sorted(times)
    return {f"p{part}_ms": ordered[round(part / 100 * (len(ordered) - 1))] for part in (50, 99)}


def visible(side, graph, options, number):
    """Milliseconds until each of some new posts is on the first page of a follower."""
    chance, times = random.Random(f"{options.seed} visible {number}"), []
    for one in range(VISIBLE):
        author = chance.randrange(options.authors)
        follower = chance.choice([user for user, followed in enumerate(graph.follows) if author in followed])
        text = text_of(f"visible {number}/{one}")
        times.append(1000 * visible_after(side.address, side.publish(author, text), side.page(follower, 5), text[:40]))
    side.settle()
    return times


def one_round(side, graph, options, number):
    found = {}
    for operation in REQUESTS:
        if hasattr(side, operation):
            found[operation] = measure(side, operation, graph, options, number)
        if operation == "publish":
            found["visible"] = visible(side, graph, options, number)
    shown = ", ".join(f"{operation} {result['cpu_s']:.2f}" for operation, result in found.items() if operation != "visible")
    print(f"round {number + 1} of {options.rounds}, {side.name}: processor seconds for 1,000 requests: {shown}", flush=True)
    return found


def medians(rounds):
    """Of the rounds of one side."""
    operations = {}
    for operation, first in rounds[0].items():
        results = [one[operation] for one in rounds]
        if operation == "visible":
            operations[operation] = {"posts": sum(map(len, results)), **percentiles(sum(results, []))}
            continue
        operations[operation] = {key: statistics.median(one[key] for one in results) for key in first if key != "programs"}
        operations[operation]["programs"] = {name: statistics.median(one["programs"].get(name, 0) for one in results) for name in first["programs"]}
        operations[operation]["cpu_s_by_round"] = [one["cpu_s"] for one in results]
    return json.loads(json.dumps(operations), parse_float=lambda text: round(float(text), 3))


def start(ends, options, graph):
    """The sides that start and can be loaded, and why the others cannot."""
    sides, missing = [], {}
    for kind in (Tidemark, Bluesky, StreamFramework, SourceDesigns):
        attempt = contextlib.ExitStack()
        try:
            with attempt:
                started = time.monotonic()
                side = kind(attempt, options)
                print(f"{kind.name} has started; {options.users} users follow {FOLLOWED} authors on average", flush=True)
                load(side, graph, options.clients)
                print(f"{kind.name} is loaded after {time.monotonic() - started:.0f} s", flush=True)
                ends.enter_context(attempt.pop_all())
                sides.append(side)
        except (Failure, OSError, ValueError, LookupError, HTTPException, subprocess.SubprocessError) as error:
            missing[kind.name] = f"{error}" or type(error).__name__
            print(f"peers: {kind.name} is left out: {missing[kind.name]}", flush=True)
    return sides, missing


def machine():
    models = [line.split(":", 1)[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")]
    return {"cores": os.cpu_count(), "model": models[0] if models else platform.machine(), "load": round(os.getloadavg()[0], 1)}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--binaries", required=True)
    parser.add_argument("--users", type=int, default=500)
    parser.add_argument("--authors", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, default=ROOT / "docs/benchmarks", help="folder of peers.json and peers.svg")
    options = parser.parse_args()
    options.target = Path(os.environ.get("CARGO_TARGET_DIR") or ROOT / "target").resolve() / "peers"
    if not FOLLOWED < options.authors < options.users:
        parser.error(f"more than {FOLLOWED} of the users must be authors, and not all of them")
    started = time.monotonic()
    for ends_it in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(ends_it, lambda *_: sys.exit(1))
    graph, rounds = graph_of(options), {}
    found = {"date": datetime.now(timezone.utc).isoformat(timespec="seconds"), "machine": machine()}
    with contextlib.ExitStack() as ends:
        sides, missing = start(ends, options, graph)
        for number in range(options.rounds):
            for side in list(sides):
                try:
                    rounds.setdefault(side, []).append(one_round(side, graph, options, number))
                except (Failure, OSError, ValueError, LookupError, HTTPException) as error:
                    missing[side.name] = f"round {number + 1}: {error}"
                    print(f"peers: {side.name} is left out: {missing[side.name]}", flush=True)
                    sides.remove(side)
                    rounds.pop(side, None)
    if not rounds:
        print("peers: nothing was measured", file=sys.stderr)
        return 1
    found |= {"seconds": round(time.monotonic() - started), "load_at_end": round(os.getloadavg()[0], 1)}
    size = {"users": options.users, "authors": options.authors, "follows": sum(map(len, graph.follows))}
    found["graph"] = {**size, "posts_per_author": POSTS, "seed": options.seed}
    found |= {"rounds": options.rounds, "clients": options.clients, "requests_per_round": {**REQUESTS, "visible": VISIBLE}}
    found["systems"] = {side.name: {"versions": side.versions, "operations": medians(one)} for side, one in rounds.items()}
    found["left_out"] = missing
    report.write(found, options.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
