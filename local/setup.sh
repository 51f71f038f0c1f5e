#!/bin/sh
# Installs Valkey, or Redis where the package manager lacks Valkey, and a C compiler if they are missing: the local stack
# and the tests need them and Rust. With the argument `python` it installs Python with venv on Debian instead; with `sam`,
# what `make sam-check` and `make binaries` need as well; with `arm64`, what `make arm64` needs; with `postgresql`, what
# `make sql-check` and `make peers` need.
# Works as root or through sudo, with apt-get, dnf, apk or Homebrew. Prints each installation, and nothing if all tools
# are installed.
set -eu

have() { command -v "$1" >/dev/null 2>&1; }
# The PATH of some users on Debian lacks the folders of servers.
PATH="$PATH:/usr/sbin:/sbin:/opt/homebrew/bin:/usr/local/bin"

fail() {
    echo "setup: $*" >&2
    exit 1
}

if [ "${1:-}" != python ] && ! have cargo && [ ! -x "${HOME:-/root}/.cargo/bin/cargo" ]; then
    fail "cargo is missing; install Rust 1.95 or newer (https://rustup.rs)"
fi

redis=
compiler=
if [ "${1:-}" != python ]; then
    have valkey-server || have redis-server || redis=missing
    have cc || compiler=missing
fi
others=
if [ $# -gt 0 ]; then
    python3 -c 'import ensurepip, venv' 2>/dev/null || others="python3 python3-venv"
fi
if [ "${1:-}" = sam ]; then
    have openssl || others="$others openssl"
    # The check starts a Docker in Linux namespaces if none runs. Other systems need a running Docker.
    [ "$(uname)" != Linux ] || have ip || others="$others iproute2"
fi
if [ "${1:-}" = arm64 ]; then
    have mmdebstrap || others="$others mmdebstrap debian-archive-keyring"
fi
if [ "${1:-}" = postgresql ]; then
    ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 || others="$others postgresql"
fi
[ -n "$redis$compiler$others" ] || exit 0

as_root() {
    if [ "$(id -u)" -eq 0 ]; then
        "$@"
    elif have sudo; then
        sudo "$@"
    else
        fail "installing needs root or sudo: $*"
    fi
}

install() {
    echo "setup: installing $* with $manager"
    case $manager in
    apt-get)
        as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@"
        ;;
    dnf) as_root dnf install -y -q "$@" ;;
    apk) as_root apk add --quiet "$@" ;;
    brew) brew install --quiet "$@" ;;
    esac
}

# Whether the package manager has a package.
offers() {
    case $manager in
    apt-get) apt-cache show "$1" ;;
    dnf) dnf info -q "$1" ;;
    apk) apk search --quiet --exact "$1" | grep . ;;
    brew) brew info "$1" ;;
    esac >/dev/null 2>&1
}

manager=
for candidate in apt-get dnf apk brew; do
    if have "$candidate"; then
        manager=$candidate
        break
    fi
done
[ -n "$manager" ] || fail "no apt-get, dnf, apk or brew here; install valkey-server or redis-server, and a C compiler, by hand"

case $manager in
apt-get) valkey_package=valkey-server redis_package=redis-server compiler_packages="gcc libc6-dev" ;;
dnf) valkey_package=valkey redis_package=redis compiler_packages=gcc ;;
apk) valkey_package=valkey redis_package=redis compiler_packages=build-base ;;
brew)
    valkey_package=valkey redis_package=redis compiler_packages=
    [ -z "$compiler" ] || fail "no C compiler; run: xcode-select --install"
    ;;
esac

[ -z "$others" ] || [ "$manager" = apt-get ] || fail "install by hand what Debian has in these packages: $others"

case $manager in
apt-get) as_root apt-get update -qq ;;
apk) as_root apk update --quiet ;;
esac
if [ -n "$redis" ] && offers $valkey_package; then
    redis_package=$valkey_package
fi

# Each variable holds a list of package names.
# shellcheck disable=SC2086
install ${redis:+$redis_package} ${compiler:+$compiler_packages} $others

[ "${1:-}" != python ] || exit 0
have valkey-server || have redis-server || fail "the server is still missing after installing $redis_package"
have cc || fail "a C compiler is still missing after installing $compiler_packages"
echo "setup: done. The local stack starts a server of its own; a system service is not needed."
