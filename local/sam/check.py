"""`make sam-check`: lints the template, calls every function's binary with every sample event, as processes and through `sam local`, and
calls the API through `sam local start-api`.

Without Docker, the check skips the parts that need it and names them. Exit status: 0 if every result is as expected, 1 if one is not, 3 if
every result is as expected but SAM was not used.
"""

import argparse
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from contextlib import nullcontext
from pathlib import Path

import bundle
import containers
import sam
import stack
from bundle import TEMPLATE
from samples import judge, prepare, samples

ROOT = Path(__file__).resolve().parents[2]
WITHOUT_DOCKER = 3
FOUND = "found.json"


def lint(target):
    """The template as written and as SAM expands it."""
    return subprocess.run([Path(__file__).with_name("lint.sh")], env=sam.environment(CARGO_TARGET_DIR=str(target))).returncode == 0


class Calls:
    """A table of calls. Each row is printed after its response. `made` has name, case and response of each."""

    def __init__(self, title):
        self.made, self.wrong = [], []
        print(f"== {title}", flush=True)

    def call(self, name, case, ask):
        """`ask` returns the response in a word, and true if it is the expected one."""
        since = time.monotonic()
        try:
            said, right = ask()
        except (OSError, KeyError, sam.SamError) as error:
            said, right = f"{type(error).__name__}: {error}", False
        self.made.append((name, case, said))
        print(f"{name:26} {case:44} {said:14} {1000 * (time.monotonic() - since):7.0f} ms{'' if right else '   NOT AS EXPECTED'}", flush=True)
        if not right:
            self.wrong.append(f"{name} {case}: {said}")


def call_processes(arguments, template=TEMPLATE):
    """Sends every event to the function's binary through the Runtime API of the local stack."""
    calls = Calls("every function's binary as a process, called through the Runtime API")
    with stack.running(arguments.stack, template, process_functions_from=arguments.binaries) as running:
        calls.call("local stack", "a follower, a feed and a post", lambda: prepared(running))
        redis = next(iter(running.environment().values()))["REDIS_URL"]

        def ask(sample):
            event = sample.event()
            if sample.function == "migrate":
                event["source"] = redis
            return judge(sample, running.invoke(sample.function, event))

        for sample in samples(ROOT / "events"):
            calls.call(sample.function, sample.name, lambda sample=sample: ask(sample))
    return calls


def prepared(running):
    prepare(running.base_url)
    return "there", True


def call_sam(arguments, folder):
    """Sends every event through `sam local invoke`, then calls every route through `sam local start-api`."""
    known = json.loads((arguments.build / "functions.json").read_text(encoding="utf-8"))
    busybox = containers.unpacked(containers.BUSYBOX, arguments.work) / "bin/busybox"
    with stack.running(arguments.stack, TEMPLATE) as running:
        prepare(running.base_url)
        with sam.against(running, arguments.venv, arguments.build, busybox, folder) as local:
            invoked = Calls("sam local invoke")
            for sample in samples(ROOT / "events"):
                function = next(name for name, body in known.items() if body["binary"] == sample.function)
                invoked.call(function, f"-e {sample.path.relative_to(ROOT)}", lambda: judge(sample, local.invoke(function, sample.path)))
            served = Calls("sam local start-api")
            with socket.create_server(("127.0.0.1", 0)) as free:
                port = free.getsockname()[1]
            with local.api(port, folder / "start-api.log") as base_url:
                for function, body in known.items():
                    for method, path in body["routes"]:
                        served.call(function, f"{method} {path}", lambda: route(base_url, method, path))
    return invoked, served


def route(base_url, method, path):
    """SAM does not verify JWTs and passes no claims on. So the function must refuse every request except for its health and unknown paths."""
    if path == "$default":
        method, path = "GET", "/v1/nothing"
    for parameter, value in [("{author}", "2"), ("{user}", "2"), ("{post}", "2-1"), ("{notice}", "1-1")]:
        path = path.replace(parameter, value)
    request = urllib.request.Request(base_url + path, b"{}" if method in ("POST", "PUT") else None, method=method)
    request.add_header("Authorization", "Bearer 1")
    try:
        with urllib.request.urlopen(request, timeout=60) as response:
            status, body = response.status, json.loads(response.read() or b"{}")
    except urllib.error.HTTPError as error:
        status, body = error.code, json.load(error)
    if path == "/v1/health":
        return str(status), status == 200 and (method == "HEAD" or body["status"] == "ok")
    if path == "/v1/nothing":
        return str(status), status == 404 and body.get("type") == "/problems/not-found"
    return str(status), status == 401 and body.get("type") == "/problems/unauthorized"


def inside(arguments, folder):
    """The checks that need Docker. Writes the result to a file, for a caller in other namespaces."""
    found = {"missing": None, "invoked": 0, "served": 0, "wrong": []}
    try:
        own = not containers.responds()
        place = containers.daemon(containers.unpacked(containers.PACKAGES, arguments.work), folder) if own else nullcontext()
        with place:
            try:
                invoked, served = call_sam(arguments, folder)
                found |= {"invoked": len(invoked.made), "served": len(served.made), "wrong": invoked.wrong + served.wrong}
            finally:
                if not own:
                    containers.remove_images()
    except containers.Missing as error:
        found["missing"] = str(error)
    (folder / FOUND).write_text(json.dumps(found), encoding="utf-8")


def through_sam(arguments):
    """Runs the checks that need Docker, here or in namespaces of its own."""
    folder = Path(tempfile.mkdtemp(prefix="tidemark-sam-"))
    try:
        if containers.responds():
            inside(arguments, folder)
        else:
            containers.check_namespaces()
            # The namespaces have no network, so the packages are downloaded first.
            containers.unpacked(containers.PACKAGES + containers.BUSYBOX, arguments.work)
            again = [*containers.NAMESPACES, sys.executable, __file__, *sys.argv[1:], "--inside", str(folder)]
            # Files that are left when the namespaces end are removed with the folder.
            subprocess.run(again, check=True, env=os.environ | {"TMPDIR": str(folder)})
        return json.loads((folder / FOUND).read_text(encoding="utf-8"))
    except containers.Missing as error:
        return {"missing": str(error), "invoked": 0, "served": 0, "wrong": []}
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--binaries", type=Path, required=True, help="folder of the functions' release binaries for this machine")
    parser.add_argument("--stack", type=Path, required=True, help="the local stack's binary")
    parser.add_argument("--target", type=Path, required=True, help="folder for created and downloaded files")
    parser.add_argument("--inside", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    arguments.work = arguments.target.resolve() / "sam"
    arguments.work.mkdir(parents=True, exist_ok=True)
    arguments.build = arguments.work / "build"
    arguments.venv = arguments.target.resolve() / "sam-venv"
    # A clean exit also ends the child processes.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    if arguments.inside:
        return inside(arguments, arguments.inside)

    since = time.monotonic()
    sam.install(arguments.target.resolve())
    clean = lint(arguments.target.resolve())
    bundle.run(arguments.venv, arguments.binaries, containers.architecture(), arguments.build)
    try:
        processes = call_processes(arguments)
        found = through_sam(arguments)
    except (stack.StackError, sam.SamError, subprocess.CalledProcessError) as error:
        print(f"sam-check: {error}")
        return 1

    wrong = ([] if clean else ["the template: see the lint above"]) + processes.wrong + found["wrong"]
    done = f"template {'clean' if clean else 'NOT clean'}, {len(processes.made) - 1} events to processes"
    if found["missing"] is None:
        done += f", {found['invoked']} through sam local invoke, {found['served']} routes through sam local start-api"
    for line in wrong:
        print(f"not as expected: {line}")
    verdict = f"{len(wrong)} not as expected" if wrong else "all as expected"
    if found["missing"] is not None:
        print(f"nothing was called through SAM: {found['missing']}")
        verdict += ", but nothing called through SAM"
    print(f"sam-check: {done}: {verdict} ({time.monotonic() - since:.0f} s)")
    return 1 if wrong else WITHOUT_DOCKER if found["missing"] is not None else 0


if __name__ == "__main__":
    sys.exit(main())
