"""`make binaries`: compares the functions' binaries of several build profiles. It measures bytes, zipped bytes, the time from spawn to
the first response with Redis plain and over TLS, that time without the start, and the processor time of a cold start and of a request.

The profiles are those of Cargo.toml and the candidates below. All are built first. Then their processes are started in turn, in shuffled
rounds, so that other load of the machine affects all of them equally.
"""

import argparse
import itertools
import json
import os
import random
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import zipfile
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from urllib.parse import urlsplit

import stack
from bundle import TEMPLATE
from runtime_api import RuntimeApi
from samples import Sample, call, judge, prepare, publish

ROOT = Path(__file__).resolve().parents[2]

# The first request to each function. It must call DynamoDB and Redis.
FIRST = {
    "fan-out": "batch",
    "follow": "follow",
    "mark-read": "read",
    "migrate": "dry-run",
    "notice": "list",
    "profile": "set",
    "publish": "like",
    "read-feed": "feed",
    "reconcile": "fan-outs",
    "projector": "edge",
}

# Users without follows, because a repeated follow changes nothing.
newcomers = itertools.count(1_000_000)

# Other candidates: optimisation, link-time optimisation, code generation units. All binaries are stripped.
CANDIDATES = {
    "o3-thin": ("3", "'thin'", "1"),
    "o3-fat": ("3", "'fat'", "1"),
    "os-fat": ("'s'", "'fat'", "1"),
    "oz-fat": ("'z'", "'fat'", "1"),
}


@dataclass(frozen=True)
class Case:
    """One binary of one profile."""

    profile: str
    function: str
    binary: Path


def build(profile, functions):
    """Builds the functions with a profile of Cargo.toml or a candidate."""
    command = ["cargo", "build", "--profile", profile, *(part for name in functions for part in ("-p", f"tidemark-{name}"))]
    if profile in CANDIDATES:
        level, lto, units = CANDIDATES[profile]
        settings = {"inherits": "'release'", "opt-level": level, "lto": lto, "codegen-units": units, "strip": "true", "debug": "false"}
        command += [part for name, value in settings.items() for part in ("--config", f"profile.{profile}.{name}={value}")]
    print("==", " ".join(command), flush=True)
    subprocess.run(command, cwd=ROOT, check=True)


def zipped(binary, folder):
    """The size in the deployed archive."""
    archive = folder / "zipped"
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as file:
        file.write(binary, "bootstrap")
    return archive.stat().st_size


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


@contextmanager
def redis(folder):
    """Starts a Redis with plain and TLS ports. Yields both URLs and the trusted certificates, which include the system's as on Lambda."""
    ca, key, certificate = folder / "ca.pem", folder / "server.key", folder / "server.pem"
    new_key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"]
    openssl(folder, "req", "-x509", *new_key, "-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=measured authority")
    openssl(folder, "req", *new_key[:-2], "-keyout", key, "-out", "server.csr", "-subj", "/CN=127.0.0.1")
    (folder / "names").write_text("subjectAltName=IP:127.0.0.1\nbasicConstraints=CA:FALSE\n", encoding="utf-8")
    openssl(folder, "x509", "-req", "-in", "server.csr", "-CA", ca, "-CAkey", "ca.key", "-CAcreateserial", "-days", "2", "-extfile", "names", "-out", certificate)
    system = Path("/etc/ssl/certs/ca-certificates.crt")
    trusted = folder / "trusted.pem"
    trusted.write_text((system.read_text(encoding="utf-8") if system.exists() else "") + ca.read_text(encoding="utf-8"), encoding="utf-8")
    plain, tls = free_port(), free_port()
    options = ["--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", folder, "--tls-auth-clients", "no"]
    options += ["--tls-cert-file", certificate, "--tls-key-file", key, "--tls-ca-cert-file", ca]
    server = subprocess.Popen([redis_server(), "--port", str(plain), "--tls-port", str(tls), *options], stdout=subprocess.DEVNULL)
    try:
        wait_for(server, plain)
        yield f"redis://127.0.0.1:{plain}", f"rediss://127.0.0.1:{tls}", trusted
    finally:
        server.terminate()
        server.wait()


def redis_server():
    """The server that the local stack starts, too."""
    return shutil.which("valkey-server") or "redis-server"


def wait_for(server, port):
    """Waits until the server listens. Fails if it has ended, or after ten seconds."""
    until = time.monotonic() + 10
    while server.poll() is None and time.monotonic() < until:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.01)
    raise SystemExit("Redis does not start")


def openssl(folder, *arguments):
    subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True)


def connections(url):
    """The number of connections that a Redis has had, including this one."""
    with socket.create_connection(("127.0.0.1", urlsplit(url).port)) as connection:
        connection.sendall(b"INFO stats\r\nQUIT\r\n")
        told = b"".join(iter(lambda: connection.recv(65536), b"")).decode()
    return int(told.split("total_connections_received:")[1].split()[0])


def first_event(function, redis_url):
    """The first request to the function. It calls Redis each time."""
    sample = Sample(function, ROOT / "events" / function / f"{FIRST[function]}.json")
    event = sample.event()
    match function:
        case "follow":
            event["requestContext"]["authorizer"]["jwt"]["claims"]["sub"] = str(next(newcomers))
        case "migrate":
            event["source"] = redis_url
        case "reconcile":
            event["overdue_ms"] = 0
    return sample, json.dumps(event).encode()


def prepare_all(base_url):
    """Creates the data that the samples need, and a fan-out that no sample finishes."""
    call(base_url, 0, "POST", "/_local/sources/fan-out/pause")
    prepare(base_url)
    publish(base_url, 2)


def start(case, environment, api):
    return subprocess.Popen([case.binary], env=environment | {"AWS_LAMBDA_RUNTIME_API": api.address}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def checked(case, sample, answered):
    right, body, at = answered
    response = json.loads(body)
    said, expected = judge(sample, response) if right else (str(response), False)
    if not expected or response.get("headers", {}).get("degraded"):
        raise SystemExit(f"{case.profile} {case.function}: {said} {response.get('headers')}")
    return at


def cold(case, environment):
    """Milliseconds from spawn to first response, of these without the start, and of processor time until the response."""
    sample, event = first_event(case.function, environment["REDIS_URL"])
    with RuntimeApi() as api:
        since = time.perf_counter()
        process = start(case, environment, api)
        try:
            # The event waits for the process. Lambda's init phase ends when the process asks for it.
            at = checked(case, sample, api.response(event))
            asked_at = api.first_asked_at
        finally:
            process.kill()
            _, _, used = os.wait4(process.pid, 0)
            process.returncode = 0
    return 1000 * (at - since), 1000 * (at - asked_at), 1000 * (used.ru_utime + used.ru_stime)


def warm(case, environment, requests):
    """Microseconds of a warm process for a request. The request is the same each time, so only the first follow changes data."""
    sample, event = first_event(case.function, environment["REDIS_URL"])
    with RuntimeApi() as api:
        process = start(case, environment, api)
        try:
            for _ in range(20):
                checked(case, sample, api.response(event))
            before = used_so_far(process.pid)
            for _ in range(requests):
                api.response(event)
            return (used_so_far(process.pid) - before) / requests / 1000
        finally:
            process.kill()
            process.wait()


def used_so_far(pid):
    """Nanoseconds of processor time of all threads that are alive."""
    return sum(int((task / "schedstat").read_text().split()[0]) for task in Path(f"/proc/{pid}/task").iterdir())


def environments(running, tls, trusted):
    """The environment and the URL of Redis, by function and by use of TLS."""
    known = {}
    for variables in running.environment().values():
        function = variables["AWS_LAMBDA_FUNCTION_NAME"]
        # The certificates are the same in both cases, because the SDK reads them too.
        known[function, False] = variables | {"SSL_CERT_FILE": str(trusted)}
        known[function, True] = known[function, False] | {"REDIS_URL": tls}
    return known


def measure(cases, arguments, folder):
    """The measurements of running processes, by case."""
    measured = {case: {"cold": {False: [], True: []}, "first": {False: [], True: []}, "cpu": {False: [], True: []}, "warm": []} for case in cases}
    with redis(folder) as (plain, tls, trusted), stack.running(arguments.stack, TEMPLATE, REDIS_URL=plain) as running:
        prepare_all(running.base_url)
        known = environments(running, tls, trusted)
        todo = [(case, secure) for case in cases for secure in (False, True)]
        for number in range(arguments.rounds):
            random.shuffle(todo)
            for case, secure in todo:
                before = connections(plain)
                milliseconds, first, used = cold(case, known[case.function, secure])
                # One connection is the measurement's own.
                if connections(plain) - before < 2:
                    raise SystemExit(f"{case.profile} {case.function}: did not connect to Redis")
                measured[case]["cold"][secure].append(milliseconds)
                measured[case]["first"][secure].append(first)
                measured[case]["cpu"][secure].append(used)
            for case in random.sample(cases, len(cases)) if number % 4 == 0 else []:
                measured[case]["warm"].append(warm(case, known[case.function, False], arguments.requests))
    return measured


def report(cases, measured, folder):
    """A table of medians in Markdown."""
    print("| function | profile | bytes | zipped | first response, ms | over TLS | after the start, ms | over TLS | its processor time, ms | over TLS | a request, µs |")
    print("|---|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|")
    for case in sorted(cases, key=lambda case: case.function):
        found = measured[case]
        times = [median(found[kind][secure]) for kind in ("cold", "first", "cpu") for secure in (False, True)]
        cells = [f"{case.binary.stat().st_size:,}", f"{zipped(case.binary, folder):,}", *(f"{value:.1f}" for value in times), f"{median(found['warm']):.0f}"]
        print("|", " | ".join([case.function, case.profile, *cells]), "|")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--stack", type=Path, required=True, help="the local stack's binary")
    parser.add_argument("--target", type=Path, required=True, help="cargo's target directory")
    parser.add_argument("--profiles", nargs="+", default=["local", "release"], help=f"of Cargo.toml, or of {', '.join(CANDIDATES)}")
    parser.add_argument("--functions", nargs="+", choices=FIRST, default=list(FIRST))
    parser.add_argument("--rounds", type=int, default=21, help="cold starts of each")
    parser.add_argument("--requests", type=int, default=300, help="requests to a warm process")
    parser.add_argument("--built", action="store_true", help="measure existing binaries without a build")
    arguments = parser.parse_args()
    for profile in [] if arguments.built else arguments.profiles:
        build(profile, arguments.functions)
    cases = [Case(profile, name, arguments.target / profile / name) for profile in arguments.profiles for name in arguments.functions]
    folder = Path(tempfile.mkdtemp(prefix="tidemark-binaries-"))
    try:
        report(cases, measure(cases, arguments, folder), folder)
        print(f"medians of {arguments.rounds} interleaved rounds, {len(os.sched_getaffinity(0))} processors, load {os.getloadavg()[0]:.1f}")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
