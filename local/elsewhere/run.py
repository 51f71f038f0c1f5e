"""`make test-elsewhere`: runs tests with DynamoDB, streams and SQS of ministack, and creates the template in its CloudFormation.

docs/elsewhere.md says how the tests run, and names in its table "Left out" those that do not.
"""

import argparse
import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from importlib import metadata
from pathlib import Path

import cloudformation

ROOT = Path(__file__).resolve().parents[2]
LIST = ROOT / "docs/elsewhere.md"
NAME = f"ministack {metadata.version('ministack')}"
SERVES_WITHIN = 60
# The messages of tests that cannot run so (`Stack::app` and `Stack::faults`).
NEEDS_ONE_PROCESS = "in this process"
NEEDS_OWN_STORES = "stores elsewhere have"
# The parts that run without arguments. The rest of `system` takes much longer.
SYSTEM = "claims deleted_runs delivery epochs events leaving likes notice_histories notices poison rebuild repeats restart rollout"
PARTS = ["cloudformation", "routes::", *(f"system::{module}::" for module in SYSTEM.split())]


@contextlib.contextmanager
def started(command, **options):
    """Ends a child and its process group at the end, however it comes."""
    child = subprocess.Popen(command, start_new_session=True, stderr=subprocess.STDOUT, **options)
    try:
        yield child
    finally:
        if child.poll() is None:
            os.killpg(child.pid, signal.SIGKILL)
            child.wait()


@contextlib.contextmanager
def emulator(log):
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    variables = os.environ | {"GATEWAY_PORT": str(port), "BIND_HOST": "127.0.0.1", "LOG_LEVEL": "ERROR"}
    with open(log, "wb") as output, started([Path(sys.executable).parent / "ministack"], env=variables, stdout=output) as child:
        deadline = time.monotonic() + SERVES_WITHIN
        while True:
            try:
                urllib.request.urlopen(f"{url}/_ministack/health", timeout=5).close()
                break
            except urllib.error.URLError:
                if child.poll() is not None or time.monotonic() > deadline:
                    raise SystemExit(f"{NAME} does not serve; its output is in {log}") from None
                time.sleep(0.1)
        yield url


def cargo(binary, *arguments):
    return ["cargo", "test", "--workspace", "--test", binary, "--", *arguments]


def tests_of(binary):
    def names(*options):
        listed = subprocess.run(cargo(binary, "--list", "--format", "terse", *options), cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True)
        return set(re.findall(r"^(.+): test$", listed.stdout, re.MULTILINE))

    return sorted(names() - names("--ignored"))


def run(binary, tests, environment, log):
    """Runs tests. Returns how many passed, and the messages of those that failed."""
    passed, failed, name, begin = 0, {}, None, time.monotonic()
    with (
        open(log, "w", buffering=1, encoding="utf-8") as file,
        started(cargo(binary, "--exact", *tests), cwd=ROOT, env=os.environ | environment, stdout=subprocess.PIPE, text=True) as child,
    ):
        for line in child.stdout:
            file.write(f"{time.monotonic() - begin:6.1f} {line}")
            if found := re.match(r"test result: .* (\d+) passed; (\d+) failed", line):
                passed = int(found[1])
            elif found := re.match(r"---- (\S+) stdout ----", line):
                name, failed[found[1]] = found[1], ""
            elif name:
                failed[name] += line
    if child.returncode and not failed:
        raise SystemExit(f"{binary} gave no result: see {log}")
    return passed, failed


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--binaries", type=Path, required=True, help="the folder with the functions")
    parser.add_argument("--logs", type=Path, required=True)
    parser.add_argument("wanted", nargs="*", default=PARTS, help="parts of names, such as routes::feed or cloudformation")
    options = parser.parse_args()
    # As with Ctrl-C, so that what was started is ended.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    options.logs.mkdir(exist_ok=True)
    is_wanted = lambda name: any(word in name for word in options.wanted)  # noqa: E731
    excluded = set(re.findall(r"^\| `(\w+::[\w:]+)` \|", LIST.read_text(encoding="utf-8"), re.MULTILINE))
    threads, begin, passed, own_stores, left_out, failures = os.cpu_count() or 1, time.monotonic(), 0, 0, 0, []
    tests_by_binary = {binary: tests_of(binary) for binary in ("routes", "system")}
    if unknown := excluded - {f"{binary}::{test}" for binary, tests in tests_by_binary.items() for test in tests}:
        raise SystemExit(f"{LIST.relative_to(ROOT)} leaves out tests that do not exist: {', '.join(sorted(unknown))}")
    with contextlib.ExitStack() as running:
        # One for each test, and one because some tests use two stacks.
        urls = [running.enter_context(emulator(options.logs / f"ministack-{number}.log")) for number in range(threads + 1)]
        if is_wanted("cloudformation"):
            cloudformation.report(NAME, urls[0], ROOT / "template.yaml")
        environment = {"TIDEMARK_TEST_STORES": ",".join(urls), "RUST_TEST_THREADS": str(threads)}
        modes = {"processes": {"TIDEMARK_TEST_PROCESSES": str(options.binaries.resolve())}, "one-process": {}}
        for binary, all_tests in tests_by_binary.items():
            wanted = [test for test in all_tests if is_wanted(f"{binary}::{test}")]
            tests = [test for test in wanted if f"{binary}::{test}" not in excluded]
            left_out += len(wanted) - len(tests)
            for mode, where in modes.items():
                if not tests:
                    break
                print(f"== {NAME}: {len(tests)} tests of {binary}, functions as {mode}", flush=True)
                good, bad = run(binary, tests, environment | where, options.logs / f"{binary}-{mode}.log")
                passed += good
                own_stores += sum(NEEDS_OWN_STORES in text for text in bad.values())
                tests = [test for test, text in bad.items() if NEEDS_ONE_PROCESS in text and where]
                failures += [f"{binary}::{test}" for test, text in bad.items() if NEEDS_OWN_STORES not in text and test not in tests]
    for name in failures:
        print(f"failed: {name}")
    counts = f"{passed} passed, {len(failures)} failed, {own_stores} need the stack's own stores, {left_out} left out"
    print(f"{NAME}: {counts}, in {time.monotonic() - begin:.0f} s")
    raise SystemExit(bool(failures))


if __name__ == "__main__":
    main()
