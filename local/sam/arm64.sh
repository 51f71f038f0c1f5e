#!/usr/bin/env bash
# Builds the functions for Lambda's arm64 on x86-64: `arm64.sh target`. cargo-lambda builds as in `sam build`, with zig
# as C compiler and linker.
#
# The standard library of the target is rustup's. If rustup is missing or cannot reach its server, or with RUST=debian,
# Debian's rustc builds, because a standard library belongs to one rustc. Debian's packages are extracted under `target`
# and not installed, and the compiler is run by the loader of its own C library.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
target=$(realpath "$1")
triple=aarch64-unknown-linux-gnu

if [ "$(uname -sm)" != "Linux x86_64" ]; then
    echo "make arm64 needs Linux on x86-64; on arm64, make sam-check calls the same functions without qemu" >&2
    exit 1
fi

# Extracts Debian packages of both architectures, and those that they need, into a folder of $target/arm64.
extract() {
    local folder=$target/arm64/$1
    [ ! -e "$folder.complete" ] || return 0
    local mode=chrootless
    [ "$(id -u)" -ne 0 ] || mode=root
    echo "== mmdebstrap --include=$2 trixie $folder"
    rm -rf "$folder"
    mkdir -p "$target/arm64"
    mmdebstrap --mode=$mode --variant=extract --architectures=amd64,arm64 --include="$2" \
        trixie "$folder" http://deb.debian.org/debian
    touch "$folder.complete"
}

rust_of_rustup() {
    [ "${RUST:-rustup}" = rustup ] && command -v rustup >/dev/null || return 1
    echo "== rustup target add $triple"
    rustup target add $triple
}

# `rustc-web` is the newest Rust of a stable Debian: browsers need it.
rust_of_debian() {
    extract rust rustc-web,libstd-rust-web-dev:arm64
    local root=$target/arm64/rust
    export RUSTC=$target/arm64/rustc
    printf '#!/bin/sh\nexec %s --library-path %s %s "$@"\n' \
        "$root/usr/lib64/ld-linux-x86-64.so.2" "$root/usr/lib/x86_64-linux-gnu" "$root/usr/bin/rustc" >"$RUSTC"
    chmod +x "$RUSTC"
    echo "== $("$RUSTC" --version)"
}

local/venv.sh local/sam/arm64.txt "$target/arm64/venv"
# The programs that run the functions: qemu, and the libraries that Lambda has too.
extract run qemu-user,libc6:arm64,libgcc-s1:arm64
rust_of_rustup || rust_of_debian
echo "== cargo lambda build --release --arm64"
PATH=$target/arm64/venv/bin:$PATH cargo lambda build --release --arm64
