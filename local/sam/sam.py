"""`sam local` against a running local stack."""

import json
import os
import signal
import subprocess
import time
import urllib.request
from contextlib import ExitStack, contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import containers
from forward import forwarding, loopback_ports
from samples import LEGACY_HOST, LEGACY_PORT
from stack import end

HERE = Path(__file__).parent
SERVES_WITHIN = 120


class SamError(Exception):
    """The command failed, or its output is not a response."""


def environment(**variables):
    """The environment without credentials. With credentials, SAM would call AWS in every command."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    nowhere = {"AWS_SHARED_CREDENTIALS_FILE": os.devnull, "AWS_CONFIG_FILE": os.devnull, "AWS_EC2_METADATA_DISABLED": "true"}
    return kept | nowhere | {"SAM_CLI_TELEMETRY": "0", "AWS_DEFAULT_REGION": "us-east-1"} | variables


def install(target):
    """Creates or updates the virtual environment of SAM and the linters."""
    venv = target / "sam-venv"
    subprocess.run([HERE.parent / "venv.sh", HERE / "requirements.txt", venv], check=True)
    return venv


class SamLocal:
    """Functions in containers that use the services of a stack on this machine."""

    def __init__(self, venv, build, options, folder):
        self.venv, self.build, self.options = venv, build, options
        # SAM leaves files in its temporary directory, so it gets this folder.
        self.environment = environment(TMPDIR=str(folder))

    def command(self, name, *arguments):
        return [self.venv / "bin/sam", "local", name, "--template", self.build / "template.yaml", *self.options, *arguments]

    def invoke(self, function, event):
        """Invokes a function with the event in a file. Returns its result."""
        done = subprocess.run(self.command("invoke", function, "--event", event), env=self.environment, capture_output=True, text=True)
        try:
            return json.loads(done.stdout.strip().splitlines()[-1])
        except (IndexError, ValueError):
            raise SamError(f"exit {done.returncode}: {(done.stdout + done.stderr).strip()[-2000:]}") from None

    @contextmanager
    def api(self, port, log):
        """Runs `sam local start-api`. Yields its base URL when it serves, and ends it afterwards."""
        # Containers stay for further requests. Otherwise each request would wait for a new container.
        command = self.command("start-api", "--port", str(port), "--warm-containers", "LAZY")
        with open(log, "w", encoding="utf-8") as output:
            child = subprocess.Popen(command, env=self.environment, stdout=output, stderr=output)
            try:
                deadline = time.monotonic() + SERVES_WITHIN
                while not listens(port):
                    if child.poll() is not None or time.monotonic() > deadline:
                        raise SamError(f"sam local start-api does not serve: {log.read_text(encoding='utf-8')[-2000:]}")
                    time.sleep(0.2)
                yield f"http://127.0.0.1:{port}"
            finally:
                # SIGINT, as with Ctrl-C, makes SAM remove its containers.
                end(child, signal.SIGINT, 60)


def listens(port):
    try:
        urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=5).close()
    except urllib.error.HTTPError:
        return True
    except OSError:
        return False
    return True


@contextmanager
def against(stack, venv, build, busybox, folder):
    """`sam local` for the functions in `build`, connected to a running stack."""
    environments = stack.environment()
    address = containers.gateway()
    values = {value for variables in environments.values() for value in variables.values()}
    ports = {port: port for port in loopback_ports(values)}
    redis = urlsplit(next(iter(environments.values()))["REDIS_URL"]).port
    legacy = {"LEGACY_REDIS_URL": f"redis://{LEGACY_HOST}:{LEGACY_PORT}"}
    reachable = {
        function: {name: value.replace("://127.0.0.1:", f"://{address}:") for name, value in variables.items()} | legacy
        for function, variables in environments.items()
    }
    file = folder / "environment.json"
    file.write_text(json.dumps(reachable), encoding="utf-8")
    containers.build_image(busybox, sorted(build.glob("*/bootstrap")))
    options = ["--env-vars", file, "--add-host", f"{LEGACY_HOST}:{address}", "--invoke-image", containers.IMAGE, "--skip-pull-image"]
    with ExitStack() as open_ends:
        open_ends.enter_context(forwarding(address, ports | {LEGACY_PORT: redis}))
        yield SamLocal(venv, build, options, folder)
