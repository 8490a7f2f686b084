#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# run.sh [NAME…]: runs the examples, or those named, each with a store of its own, and compares what they print with
# expected.txt; then another example reads what each has stored. PROFILE is the profile of cargo that is used: debug (the
# default) or release. See README.md.
set -eu
cd "$(dirname "$0")/.."
: "${PROFILE:=debug}"
cargo_target=$(realpath -m "${TARGET:-${CARGO_TARGET_DIR:-target}}")
version=${VERSION:-$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)}
target=$cargo_target/$PROFILE
case $PROFILE in
release) flag=--release ;;
debug) flag= ;;
*) echo "PROFILE is debug or release, not $PROFILE" >&2 && exit 64 ;;
esac
# shellcheck disable=SC2086 # no flag is no word
CARGO_TARGET_DIR=$cargo_target cargo build --quiet $flag --package iov-cli --package iovd --package iov-capi
library=$cargo_target/examples-$PROFILE
mkdir -p "$library"
scripts/link-shared.sh "$target/libioverbs_capi.a" "$library" "$version"

examples=$PWD/examples
EXAMPLE_TARGET=$target
EXAMPLE_FLAGS="-I$PWD/bindings/c/include -L$library -Wl,-rpath,$library -lioverbs"
PATH=$target:$PATH
IOVERBS_IOVD=$target/iovd
IOVD_IDLE_S=${IOVD_IDLE_S:-20}
export EXAMPLE EXAMPLE_TARGET EXAMPLE_FLAGS PATH IOVERBS_IOVD IOVD_IDLE_S IOVERBS_URL

scratch=$(mktemp -d)
IOVERBS_URL=
end() {
    [ -z "$IOVERBS_URL" ] || iov down --quiet >/dev/null 2>&1 || true
    rm -rf "$scratch"
}
trap end EXIT
trap 'exit 130' INT TERM

# An example that reads what this one has stored, in another language.
reader_of() {
    case $1 in
    shell) echo c ;;
    c) echo cpp ;;
    *) echo shell ;;
    esac
}

failed=
# try NAME WHAT ARGUMENT…: runs an example on the store, and says how that went: WHAT, and ok
try() {
    name=$1 what=$2
    shift 2
    EXAMPLE=$examples/$name
    mkdir -p "$scratch/$name"
    code=0
    (cd "$scratch/$name" && "$EXAMPLE/run.sh" "$@") >"$scratch/out" 2>"$scratch/err" || code=$?
    # The next one finds what the files say, not what a daemon still remembers.
    iov down >/dev/null 2>&1 || true
    if [ "$code" -eq 77 ]; then
        echo "$what: left out: $(tail -n 1 "$scratch/err")"
        return 77
    elif [ "$code" -ne 0 ]; then
        cat "$scratch/err" >&2
        echo "$what: failed with $code" >&2
    elif ! diff -u "$examples/expected.txt" "$scratch/out" >&2; then
        echo "$what: prints something else than expected.txt" >&2
    else
        echo "$what: ok"
        return 0
    fi
    failed="$failed $name"
    return 1
}

if [ $# -eq 0 ]; then
    for found in "$examples"/*/run.sh; do
        set -- "$@" "$(basename "$(dirname "$found")")"
    done
fi
for writer in "$@"; do
    IOVERBS_URL=file:$scratch/store-$writer
    try "$writer" "examples/$writer" || continue
    reader=$(reader_of "$writer")
    try "$reader" "examples/$writer, read by examples/$reader" read || true
done
[ -z "$failed" ] || { echo "failed:$failed" >&2 && exit 1; }
