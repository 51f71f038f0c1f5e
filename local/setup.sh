#!/bin/sh
# Installs redis-server and a C compiler if they are missing: the local stack and the tests need them and Rust. With the
# argument `python` it also installs Python with venv on Debian; with `sam`, what `make sam-check` and `make binaries`
# need as well; with `arm64`, what `make arm64` needs.
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

if ! have cargo && [ ! -x "${HOME:-/root}/.cargo/bin/cargo" ]; then
    fail "cargo is missing; install Rust 1.95 or newer (https://rustup.rs)"
fi

redis=
compiler=
have redis-server || redis=missing
have cc || compiler=missing
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
        as_root apt-get update -qq
        as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@"
        ;;
    dnf) as_root dnf install -y -q "$@" ;;
    apk) as_root apk add --quiet "$@" ;;
    brew) brew install --quiet "$@" ;;
    esac
}

manager=
for candidate in apt-get dnf apk brew; do
    if have "$candidate"; then
        manager=$candidate
        break
    fi
done
[ -n "$manager" ] || fail "no apt-get, dnf, apk or brew here; install redis-server and a C compiler by hand"

case $manager in
apt-get) redis_package=redis-server compiler_packages="gcc libc6-dev" ;;
dnf) redis_package=redis compiler_packages=gcc ;;
apk) redis_package=redis compiler_packages=build-base ;;
brew)
    redis_package=redis compiler_packages=
    [ -z "$compiler" ] || fail "no C compiler; run: xcode-select --install"
    ;;
esac

[ -z "$others" ] || [ "$manager" = apt-get ] || fail "install by hand what Debian has in these packages: $others"

# Each variable holds a list of package names.
# shellcheck disable=SC2086
install ${redis:+$redis_package} ${compiler:+$compiler_packages} $others

have redis-server || fail "redis-server is still missing after installing $redis_package"
have cc || fail "a C compiler is still missing after installing $compiler_packages"
echo "setup: done. The local stack starts a redis-server of its own; a system service is not needed."
