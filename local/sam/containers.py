"""Docker for `sam local`: a running daemon or a daemon of our own, and an image without a registry.

A daemon of our own is unpacked from Debian's packages and not installed. It runs in network, mount and process namespaces of its own, so it
adds no service, bridge or firewall rule to this machine. When the first process of those namespaces ends, the kernel ends the daemon and
every container.
"""

import os
import platform
import re
import shutil
import subprocess
import tarfile
import time
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path

from stack import end

PACKAGES = ["docker.io", "containerd", "runc", "libdevmapper1.02.1"]
BUSYBOX = ["busybox-static"]
# The address of this machine as seen from a container of our own daemon.
GATEWAY = "172.17.0.1"
IMAGE = "tidemark/provided:al2023"
NAMESPACES = ["unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
STARTS_WITHIN = 60


class Missing(Exception):
    """Docker cannot run here. The text names the missing part."""


def architecture():
    """This machine's architecture, as SAM names it."""
    return {"x86_64": "x86_64", "aarch64": "arm64"}.get(platform.machine()) or platform.machine()


def responds():
    """Returns true if a daemon responds at DOCKER_HOST, or at Docker's default address."""
    return bool(shutil.which("docker")) and subprocess.run(["docker", "info"], capture_output=True).returncode == 0


def unpacked(packages, folder):
    """Unpacks the files of Debian packages. They are downloaded once and never installed."""
    root = folder / "root"
    missing = [name for name in packages if not (folder / f"{name}.unpacked").exists()]
    if missing:
        if not shutil.which("apt-get"):
            raise Missing("no Docker daemon responds, and apt-get is missing to download Debian's packages; start Docker and try again")
        downloads = folder / "downloads"
        downloads.mkdir(parents=True, exist_ok=True)
        print(f"== apt-get download {' '.join(missing)} (unpacked into {root})", flush=True)
        download = ["apt-get", "-qq", "-o", "APT::Sandbox::User=root", "download", *missing]
        if subprocess.run(download, cwd=downloads, capture_output=True).returncode != 0:
            if os.geteuid() == 0:
                subprocess.run(["apt-get", "-qq", "update"], capture_output=True)
            done = subprocess.run(download, cwd=downloads, capture_output=True, text=True)
            if done.returncode != 0:
                raise Missing(f"`apt-get download {' '.join(missing)}` fails: {done.stderr.strip()}")
        for package in downloads.glob("*.deb"):
            subprocess.run(["dpkg-deb", "-x", package, root], check=True)
            package.unlink()
        for name in missing:
            (folder / f"{name}.unpacked").touch()
    return root


def check_namespaces():
    """Fails if a daemon of our own cannot run in namespaces."""
    if platform.system() != "Linux":
        raise Missing("no Docker daemon responds, and one can be started on Linux only")
    if os.geteuid() != 0:
        raise Missing("no Docker daemon responds, and starting one takes root: start Docker, or run `sudo make sam-check`")
    for tool in ["unshare", "ip", "dpkg-deb"]:
        if not shutil.which(tool):
            raise Missing(f"no Docker daemon responds, and `{tool}` is missing to start one (Debian: util-linux, iproute2, dpkg)")
    tried = subprocess.run([*NAMESPACES, "true"], capture_output=True, text=True)
    if tried.returncode != 0:
        raise Missing(f"no Docker daemon responds, and this machine allows no namespaces to start one in: {tried.stderr.strip()}")


@contextmanager
def daemon(root, folder):
    """Starts a daemon of our own in the namespaces of this process. Sets DOCKER_HOST and PATH."""
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    socket, log = f"unix://{folder}/docker.sock", folder / "dockerd.log"
    os.environ["PATH"] = f"{root}/usr/sbin:{root}/usr/bin:{os.environ['PATH']}"
    os.environ["DOCKER_HOST"] = socket
    libraries = ":".join(str(path.parent) for path in root.glob("**/libdevmapper.so.*"))
    # These namespaces have no route to the outside, so filters, forwarding and masquerading are not needed.
    quiet = ["--iptables=false", "--ip6tables=false", "--ip-forward=false", "--ip-masq=false"]
    places = ["--data-root", folder / "data", "--exec-root", folder / "run", "--pidfile", folder / "docker.pid", "-H", socket]
    with open(log, "w", encoding="utf-8") as output:
        environment = {"PATH": os.environ["PATH"], "LD_LIBRARY_PATH": libraries}
        child = subprocess.Popen(["dockerd", *quiet, "--bip", f"{GATEWAY}/16", *places], env=environment, stdout=output, stderr=output)
    try:
        deadline = time.monotonic() + STARTS_WITHIN
        while not responds():
            if child.poll() is not None or time.monotonic() > deadline:
                raise Missing(f"dockerd does not start here: {reason(log)}")
            time.sleep(0.1)
        yield
    finally:
        end(child)


def reason(log):
    """The last error in a daemon's log."""
    lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    told = [line for line in lines if "level=error" in line or "level=fatal" in line or "failed to start daemon" in line]
    return (told or lines or ["its log is empty"])[-1]


def gateway():
    """This machine's address as containers on the default bridge see it."""
    form = "{{range .IPAM.Config}}{{.Gateway}} {{end}}"
    found = subprocess.run(["docker", "network", "inspect", "bridge", "-f", form], capture_output=True, text=True, check=True).stdout.split()
    return next((address for address in found if re.fullmatch(r"[\d.]+", address)), GATEWAY)


def build_image(busybox, binaries):
    """Builds an image with a shell, certificates and the libraries of the binaries, like `provided.al2023` but with this machine's C library."""
    buffer = BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as image:
        for name in ["bin", "etc/ssl/certs", "tmp", "var/task", "var/runtime", "var/rapid"]:
            entry = tarfile.TarInfo(name)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o1777 if name == "tmp" else 0o755
            image.addfile(entry)
        image.add(busybox, "bin/busybox")
        for applet in ["sh", "chmod", "mkdir", "mv", "cp", "ls"]:
            entry = tarfile.TarInfo(f"bin/{applet}")
            entry.type, entry.linkname = tarfile.SYMTYPE, "busybox"
            image.addfile(entry)
        for library in sorted(libraries(binaries)):
            image.add(Path(library).resolve(), library.lstrip("/"))
        certificates = Path("/etc/ssl/certs/ca-certificates.crt")
        if certificates.exists():
            image.add(certificates.resolve(), str(certificates).lstrip("/"))
    subprocess.run(["docker", "import", "--change", "ENV PATH=/bin", "-", IMAGE], input=buffer.getvalue(), capture_output=True, check=True)


def libraries(binaries):
    """The paths of all shared libraries that the binaries need, including the loader."""
    listed = subprocess.run(["ldd", *binaries], capture_output=True, text=True, check=True).stdout
    return set(re.findall(r"^\s+(?:\S+ => )?(/\S+) \(0x", listed, re.MULTILINE))


def remove_images():
    """Removes what this check has added to a daemon that it did not start."""
    found = subprocess.run(["docker", "images", "-q", IMAGE.split(":")[0]], capture_output=True, text=True).stdout.split()
    if found:
        subprocess.run(["docker", "rmi", "-f", *sorted(set(found))], capture_output=True)
