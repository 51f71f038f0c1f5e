"""`make arm64`: calls the functions that are built for Lambda's arm64 with every sample event, under qemu, and prints a table of them.

Exit status: 0 if every result is as expected and the C library of Lambda has every symbol, otherwise 1.
"""

import argparse
import re
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

from binaries import zipped
from bundle import TEMPLATE
from check import ROOT, call_processes
from stack import StackError

# The C library of Amazon Linux 2023, which `provided.al2023` is.
GLIBC = (2, 34)


def newest_symbol(binary):
    """The newest version of glibc that a dynamic symbol of the binary needs."""
    listed = subprocess.run(["readelf", "--version-info", "--wide", binary], capture_output=True, text=True, check=True).stdout
    return max(tuple(map(int, version.split("."))) for version in re.findall(r"Name: GLIBC_([\d.]+)", listed))


def under_qemu(bootstraps, root, folder):
    """Writes a program for each function that runs its binary under qemu."""
    for name, bootstrap in bootstraps.items():
        program = folder / name
        program.write_text(f'#!/bin/sh\nexec "{root}/usr/bin/qemu-aarch64" -L "{root}/usr" "{bootstrap}"\n', encoding="utf-8")
        program.chmod(0o755)


def patient(folder):
    """Writes the template with long timeouts: a first response under qemu may take longer than a function has on Lambda."""
    template = folder / "template.yaml"
    template.write_text(re.sub(r"^( +Timeout:) \d+$", r"\1 120", TEMPLATE.read_text(encoding="utf-8"), flags=re.MULTILINE), encoding="utf-8")
    return template


def report(bootstraps, calls, folder):
    """Prints a row for each function. Returns what is wrong."""
    wrong = list(calls.wrong)
    print("| function | bytes | zipped | newest symbol | responses to the sample events |")
    print("|---|--:|--:|---|---|")
    for name, bootstrap in bootstraps.items():
        symbol = newest_symbol(bootstrap)
        shown = "GLIBC_" + ".".join(map(str, symbol))
        said = Counter(said for function, _, said in calls.made if function == name)
        if symbol > GLIBC:
            wrong.append(f"{name} needs {shown}")
        if not said:
            wrong.append(f"{name} has no sample event")
        responses = ", ".join(f"{count} × {what}" for what, count in sorted(said.items()))
        print(f"| {name} | {bootstrap.stat().st_size:,} | {zipped(bootstrap, folder):,} | {shown} | {responses} |")
    return wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--built", type=Path, required=True, help="folder of cargo-lambda's builds")
    parser.add_argument("--root", type=Path, required=True, help="folder of qemu and the arm64 libraries")
    parser.add_argument("--stack", type=Path, required=True, help="the local stack's binary")
    arguments = parser.parse_args()
    # A clean exit also ends the child processes.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    functions = sorted(path.parent.name for path in ROOT.glob("functions/*/Cargo.toml"))
    bootstraps = {name: arguments.built.resolve() / name / "bootstrap" for name in functions}
    with tempfile.TemporaryDirectory(prefix="tidemark-arm64-") as folder:
        arguments.binaries = Path(folder)
        under_qemu(bootstraps, arguments.root.resolve(), arguments.binaries)
        try:
            calls = call_processes(arguments, patient(arguments.binaries))
        except StackError as error:
            print(f"arm64: {error}")
            return 1
        wrong = report(bootstraps, calls, arguments.binaries)
    for line in wrong:
        print(f"not as expected: {line}")
    print(f"arm64: {len(bootstraps)} functions, {len(calls.made) - 1} events: {f'{len(wrong)} not as expected' if wrong else 'all as expected'}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
