#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# run.sh [NAME…]: runs the examples, or those named, each with a store of its own, and compares what they print with
# expected.txt. PROFILE is the profile of cargo that is used: debug (the default) or release. See README.md.
set -eu
cd "$(dirname "$0")/.."
: "${PROFILE:=debug}"
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")/$PROFILE
case $PROFILE in
release) flag=--release ;;
debug) flag= ;;
*) echo "PROFILE is debug or release, not $PROFILE" >&2 && exit 64 ;;
esac
packages='--package iov-cli --package iovd'
[ ! -e bindings/c/Cargo.toml ] || packages="$packages --package iov-capi"
# shellcheck disable=SC2086 # the words are meant to be split
cargo build --quiet $flag $packages

examples=$PWD/examples
EXAMPLE_TARGET=$target
PATH=$target:$PATH
IOVERBS_IOVD=$target/iovd
IOVD_IDLE_S=${IOVD_IDLE_S:-20}
export EXAMPLE EXAMPLE_TARGET PATH IOVERBS_IOVD IOVERBS_URL IOVD_IDLE_S

scratch=$(mktemp -d)
IOVERBS_URL=
end() {
    [ -z "$IOVERBS_URL" ] || iov down --quiet >/dev/null 2>&1 || true
    rm -rf "$scratch"
}
trap end EXIT
trap 'exit 130' INT TERM

if [ $# -eq 0 ]; then
    for found in "$examples"/*/run.sh; do
        set -- "$@" "$(basename "$(dirname "$found")")"
    done
fi
failed=
for name in "$@"; do
    EXAMPLE=$examples/$name
    IOVERBS_URL=file:$scratch/$name/store
    mkdir -p "$scratch/$name/here"
    code=0
    (cd "$scratch/$name/here" && "$EXAMPLE/run.sh") >"$scratch/$name/out" 2>"$scratch/$name/err" || code=$?
    iov down >/dev/null 2>&1 || true
    if [ "$code" -eq 77 ]; then
        echo "examples/$name: left out: $(tail -n 1 "$scratch/$name/err")"
    elif [ "$code" -ne 0 ]; then
        cat "$scratch/$name/err" >&2
        echo "examples/$name: failed with $code" >&2
        failed="$failed $name"
    elif ! diff -u "$examples/expected.txt" "$scratch/$name/out" >&2; then
        echo "examples/$name: prints something else than expected.txt" >&2
        failed="$failed $name"
    else
        echo "examples/$name: ok"
    fi
done
[ -z "$failed" ] || { echo "failed:$failed" >&2 && exit 1; }
