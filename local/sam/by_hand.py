"""`make sam-invoke` and `make sam-api`: `sam local` with the running local stack and the running Docker."""

import argparse
import os
import subprocess
import sys
import tempfile
import urllib.error
from pathlib import Path

import bundle
import containers
import sam
from stack import Stack


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--binaries", type=Path, required=True, help="folder of the functions' release binaries for this machine")
    parser.add_argument("--target", type=Path, required=True, help="folder for created and downloaded files")
    parser.add_argument("command", choices=["invoke", "start-api"])
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="for the command of SAM")
    arguments = parser.parse_args()
    address = os.environ.get("TIDEMARK_ADDR", "127.0.0.1:3000")
    if not containers.responds():
        return "no Docker daemon responds"
    target = arguments.target.resolve()
    venv, build = sam.install(target), target / "sam" / "build"
    bundle.run(venv, arguments.binaries, containers.architecture(), build)
    busybox = containers.unpacked(containers.BUSYBOX, target / "sam") / "bin/busybox"
    with tempfile.TemporaryDirectory(prefix="tidemark-sam-") as folder:
        try:
            with sam.against(Stack(f"http://{address}"), venv, build, busybox, Path(folder)) as local:
                return subprocess.run(local.command(arguments.command, *arguments.arguments), env=local.environment).returncode
        except urllib.error.URLError as error:
            return f"no local stack responds at {address}, start one with `make run`: {error.reason}"
        except KeyboardInterrupt:
            return 0
        finally:
            containers.remove_images()


if __name__ == "__main__":
    sys.exit(main())
