"""`make watch`: builds the local stack, runs it, and does both again when a file is saved.

A build that fails leaves the running stack as it is. Data stays, as with `make run`. Ctrl-C ends everything.

    watch.py <stack> -- <build command>
"""

import queue
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

from watchfiles import watch

# Editors replace files when they save. So the folders of single files are watched, not the files.
FOLDERS = ["functions", "shared", "local/stack"]
TEMPLATE = "template.yaml"
FILES = {TEMPLATE, "openapi.yaml", "Cargo.toml", "Cargo.lock"}
SOURCES = {".rs", ".lua", ".toml", ".html", ".js", ".css", ".yaml", ".txt"}
# The stack ends by itself well before this time.
STOPS_WITHIN = 20


def say(text):
    print(f"== {time.strftime('%H:%M:%S')} {text}", flush=True)


def watcher(changes, *paths, wanted, recursive):
    # A file that is written several times by one save is one change.
    for found in watch(*paths, watch_filter=lambda _, path: wanted(Path(path)), recursive=recursive, step=20):
        changes.put({str(Path(path).relative_to(Path.cwd())) for _, path in found})


def watchers():
    """Starts the watchers. The queue has a set of paths for each save."""
    changes = queue.Queue()
    folders = [Path.cwd() / folder for folder in FOLDERS]
    in_tests = lambda path: "tests" in path.parts or path.name == "tests.rs"
    everywhere = {"wanted": lambda path: path.suffix in SOURCES and not in_tests(path), "recursive": True}
    at_root = {"wanted": lambda path: path.name in FILES, "recursive": False}
    for paths, options in [(folders, everywhere), ([Path.cwd()], at_root)]:
        threading.Thread(target=watcher, args=(changes, *paths), kwargs=options, daemon=True).start()
    return changes


class Loop:
    def __init__(self, stack, build):
        self.stack, self.build_command, self.process = Path(stack), build, None
        # When the binary that runs was built.
        self.of = None

    def build(self):
        started = time.monotonic()
        done = subprocess.run(self.build_command, check=False).returncode == 0
        took = f"{time.monotonic() - started:.1f} s"
        kept = "; the stack of before goes on" if self.runs() else "; save a file to build again"
        say(f"built in {took}" if done else f"BUILD FAILED after {took}{kept}")
        return done

    def runs(self):
        return self.process is not None and self.process.poll() is None

    def built(self):
        return self.stack.stat().st_mtime_ns

    def start(self):
        self.stop()
        self.of = self.built()
        say(f"starting {self.stack}")
        self.process = subprocess.Popen([self.stack])

    def stop(self):
        if self.runs():
            self.process.send_signal(signal.SIGTERM)
            self.wait()

    def wait(self):
        if self.process is None:
            return
        try:
            self.process.wait(STOPS_WITHIN)
        except subprocess.TimeoutExpired:
            say("the stack does not stop, killing it")
            self.process.kill()
            self.process.wait()

    def run(self, changes):
        say("Ctrl-C ends everything")
        if self.build():
            self.start()
        reported = False
        while True:
            try:
                changed = changes.get(timeout=1)
            except queue.Empty:
                if self.process is not None and not self.runs() and not reported:
                    say(f"the stack ended with status {self.process.returncode}; save a file to start it again")
                    reported = True
                continue
            while not changes.empty():
                changed |= changes.get()
            names = sorted(changed)
            say("changed: " + ", ".join(names[:3]) + (f" and {len(names) - 3} more" if names[3:] else ""))
            if self.build():
                if self.runs() and self.of == self.built() and TEMPLATE not in changed:
                    say("the stack is the same and goes on")
                else:
                    self.start()
            reported = False


def main():
    stack, separator, *build = sys.argv[1:]
    assert separator == "--" and build
    loop = Loop(stack, build)
    # SIGTERM ends the loop as Ctrl-C does.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        loop.run(watchers())
    except KeyboardInterrupt:
        # Ctrl-C has reached the stack too; SIGTERM has not.
        loop.stop()
        loop.wait()
        say("ended")


if __name__ == "__main__":
    main()
