#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# run.sh [PROGRAM…]: builds the shared library and runs the C tests against it, each compiled as C11 and as C++17.
# With names, only those programs. Sanitizers and valgrind are the business of asan.sh.
set -eu
cd "$(dirname "$0")/../../.."
target=${TARGET:-${CARGO_TARGET_DIR:-target}}
version=${VERSION:-$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)}
tests=bindings/c/tests
# Stamps of what was compiled and run lie apart from what cargo makes.
out=$target/c-tests
mkdir -p "$out"

# A debug build: its overflow checks and assertions are tests too.
cargo build --quiet -p iov-capi
scripts/link-shared.sh "$target/debug/libioverbs_capi.a" "$out" "$version"

# The library exports what the map lists, under its version, and nothing else.
sed -n 's/^ *\(iov_[a-z0-9_]*\);.*/\1@@IOVERBS_0.1/p' bindings/c/ioverbs.map | sort > "$out/wanted"
nm -D --defined-only "$out/libioverbs.so" | awk '$2 != "A" { print $3 }' | sort > "$out/found"
if ! diff "$out/wanted" "$out/found" > "$out/difference"; then
    echo 'the symbols of libioverbs.so (>) are not those of bindings/c/ioverbs.map (<):' >&2
    cat "$out/difference" >&2
    exit 1
fi

warnings='-Wall -Wextra -Werror -pedantic -g -O1 -pthread'
link="-I bindings/c/include -L $out -Wl,-rpath,$(cd "$out" && pwd) -lioverbs"
[ $# -gt 0 ] || set -- "$tests"/*.c
for name in "$@"; do
    name=$(basename "$name" .c)
    # shellcheck disable=SC2086 # options are lists of words
    "${CC:-cc}" -std=c11 -D_GNU_SOURCE $warnings "$tests/$name.c" -o "$out/$name-c" $link
    # shellcheck disable=SC2086
    "${CXX:-c++}" -x c++ -std=c++17 $warnings "$tests/$name.c" -o "$out/$name-cpp" $link
    for language in c cpp; do
        echo "  $name ($language)"
        # A program that hangs is a failure, not a long wait.
        timeout 300 "$out/$name-$language" > "$out/$name-$language.log" 2>&1 || {
            cat "$out/$name-$language.log" >&2
            echo "$tests/$name.c failed as $language" >&2
            exit 1
        }
        grep '^  *>' "$out/$name-$language.log" || true
    done
done
