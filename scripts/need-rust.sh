#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# need-rust.sh: says clearly what is missing if the pinned Rust toolchain with rustfmt and clippy is not here.
set -eu
cd "$(dirname "$0")/.."

want=$(sed -n 's/^channel = "\(.*\)"/\1/p' rust-toolchain.toml)
fail() {
    echo "Rust $want is needed (rust-toolchain.toml): $1." >&2
    echo "Install it with: rustup toolchain install $want --component rustfmt --component clippy" >&2
    exit 1
}

command -v cargo >/dev/null 2>&1 || fail "cargo is not found"
have=$(rustc --version 2>/dev/null | cut -d ' ' -f 2) || true
[ "$have" = "$want" ] || fail "rustc is ${have:-not found}"
cargo fmt --version >/dev/null 2>&1 || fail "rustfmt is missing"
cargo clippy --version >/dev/null 2>&1 || fail "clippy is missing"
