"""What mypy says to a program that uses the installed package. `clients/check.sh` installs it in TIDEMARK_APP."""

from __future__ import annotations

import functools
import os
import pathlib
import re
import subprocess
import sys

import pytest

APP = pathlib.Path(os.environ["TIDEMARK_APP"])
LINES = (APP / "refused.py").read_text().splitlines()
WRONG = [(at, *found.groups()) for at, text in enumerate(LINES, 1) if (found := re.match(r" *(.*)  # ([a-z-]+): (.*)", text))]

pytestmark = pytest.mark.xdist_group("types")


@functools.cache
def refused() -> list[tuple[int, str]]:
    """Lines and codes."""
    options = ["--strict", "--python-executable", str(APP / "venv/bin/python"), "--cache-dir", str(APP / "mypy")]
    command = [sys.executable, "-m", "mypy", *options, "--no-error-summary", "refused.py"]
    output = subprocess.run(command, cwd=APP, capture_output=True, text=True).stdout
    return [(int(line), code) for line, code in re.findall(r"^refused\.py:(\d+): error: .*\[([a-z-]+)\]$", output, re.M)]


@pytest.mark.parametrize(("at", "call", "code", "why"), WRONG)
def test_it_is_refused(at: int, call: str, code: str, why: str) -> None:
    assert (at, code) in refused(), f"{call}: {why}"


def test_eight_calls_are_refused_and_no_other_line() -> None:
    assert refused() == [(at, code) for at, _, code, _ in WRONG]
    assert len(WRONG) == 8
