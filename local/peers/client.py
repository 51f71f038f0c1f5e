"""The client: the same for every system. And the processor time of a system's processes."""

import http.client
import json
import os
import threading
import time
from pathlib import Path

TIMEOUT_SECONDS = 60
TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


class Failure(Exception):
    """A system did not start, or did not respond as expected."""


def send_all(address, requests, clients):
    """Sends requests (method, path, token, body) over as many connections as there are clients. Returns (seconds, body) of each."""
    responses, failures, lock, waiting = [None] * len(requests), [], threading.Lock(), iter(range(len(requests)))

    def work():
        connection = http.client.HTTPConnection(*address, timeout=TIMEOUT_SECONDS)
        try:
            connection.connect()
            while not failures:
                with lock:
                    number = next(waiting, None)
                if number is None:
                    return
                responses[number] = send(connection, *requests[number])
        except (Failure, OSError, http.client.HTTPException) as error:
            failures.append(f"{type(error).__name__}: {error}")
        finally:
            connection.close()

    threads = [threading.Thread(target=work, daemon=True) for _ in range(min(clients, len(requests)))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise Failure(failures[0])
    return responses


def send(connection, method, path, token, body):
    headers = {"Accept": "application/json", "Authorization": f"Bearer {token}"}
    text = None
    if body is not None:
        headers["Content-Type"], text = "application/json", json.dumps(body)
    started = time.perf_counter()
    connection.request(method, path, text, headers)
    response = connection.getresponse()
    content = response.read()
    took = time.perf_counter() - started
    if response.status >= 400:
        raise Failure(f"{method} {path}: {response.status} {content[:300].decode(errors='replace')}")
    return took, content


def visible_after(address, publish, page, text):
    """Seconds from the start of a publish until the post is on a follower's page, which is requested every 5 ms."""
    connections = [http.client.HTTPConnection(*address, timeout=TIMEOUT_SECONDS) for _ in range(2)]
    try:
        send(connections[1], *page)
        started = time.perf_counter()
        send(connections[0], *publish)
        while text.encode() not in send(connections[1], *page)[1]:
            if time.perf_counter() - started > TIMEOUT_SECONDS:
                raise Failure(f"a post is not visible after {TIMEOUT_SECONDS} s")
            time.sleep(0.005)
        return time.perf_counter() - started
    finally:
        for connection in connections:
            connection.close()


def processor_seconds(roots):
    """User and system time of processes and their descendants, by the name of the program."""
    parents, times = {}, {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            program, rest = (folder / "stat").read_text().split("(", 1)[1].rsplit(")", 1)
        except OSError:
            continue  # It has ended.
        fields = rest.split()
        parents[int(folder.name)] = int(fields[1])
        # Those of its children that have ended are counted here.
        times[int(folder.name)] = (program, sum(map(int, fields[11:15])) / TICKS_PER_SECOND)
    by_program = {}
    for process, (program, seconds) in times.items():
        ancestor = process
        while ancestor not in roots and ancestor in parents:
            ancestor = parents[ancestor]
        if ancestor in roots:
            by_program[program] = by_program.get(program, 0) + seconds
    return by_program
