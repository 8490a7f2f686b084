#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# asan.sh: the fuzzer of the C ABI under AddressSanitizer, where a nightly toolchain is installed; the C and C++ tests
# under the sanitizers of the compiler; and those that one thread runs under valgrind. Says what it leaves out, and why.
set -eu
cd "$(dirname "$0")/../../.."
target=${TARGET:-${CARGO_TARGET_DIR:-target}}
version=${VERSION:-$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)}
tests=bindings/c/tests
out=$target/c-asan
mkdir -p "$out"
out=$(cd "$out" && pwd)

if rustc +nightly --version > /dev/null 2>&1; then
    host=$(rustc -vV | sed -n 's/^host: //p')
    echo '  the fuzzer under AddressSanitizer'
    # Without -Zbuild-std the standard library itself is not instrumented; what it is called with is.
    # Requests for more memory than there is are part of the test.
    RUSTFLAGS='-Zsanitizer=address' ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1 CARGO_TARGET_DIR="$out/rust" \
        cargo +nightly test --quiet -p iov-capi --target "$host" > "$out/fuzz.log" 2>&1 || {
        cat "$out/fuzz.log" >&2
        exit 1
    }
else
    echo '  no nightly toolchain: the fuzzer is not run under AddressSanitizer'
fi

cargo build --quiet -p iov-capi
scripts/link-shared.sh "$target/debug/libioverbs_capi.a" "$out" "$version"
link="-I bindings/c/include -L $out -Wl,-rpath,$out -lioverbs"

run() { # run LOG COMMAND…
    log=$1
    shift
    timeout 1200 "$@" > "$log" 2>&1 || {
        cat "$log" >&2
        echo "failed: $*" >&2
        exit 1
    }
}

echo '  the C tests under the sanitizers of the C compiler, but for fork: their allocator is locked in a child'
for name in "$tests"/*.c; do
    name=$(basename "$name" .c)
    [ "$name" != fork ] || continue
    # shellcheck disable=SC2086 # options are lists of words
    "${CC:-cc}" -std=c11 -D_GNU_SOURCE -Wall -Wextra -g -O1 -pthread -fsanitize=address,undefined \
        -fno-sanitize-recover=all "$tests/$name.c" -o "$out/$name" $link
    # Handles that a test leaves open are the library's to the end; valgrind looks for what is really lost.
    ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1 run "$out/$name.log" "$out/$name"
done

echo '  the C++ tests likewise'
mkdir -p "$out/cpp"
for name in "$tests"/cpp/*.cpp; do
    name=cpp/$(basename "$name" .cpp)
    # shellcheck disable=SC2086 # options are lists of words
    "${CXX:-c++}" -std=c++17 -Wall -Wextra -g -O1 -pthread -fsanitize=address,undefined -fno-sanitize-recover=all \
        "$tests/$name.cpp" -o "$out/$name" $link
    ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1 run "$out/$name.log" "$out/$name"
done

if command -v valgrind > /dev/null; then
    for name in abuse_handles abuse_arguments rules batch buffers metadata session; do
        echo "  $name under valgrind"
        # shellcheck disable=SC2086
        "${CC:-cc}" -std=c11 -D_GNU_SOURCE -g -O1 -pthread "$tests/$name.c" -o "$out/$name-plain" $link
        run "$out/$name-valgrind.log" valgrind --quiet --error-exitcode=1 --leak-check=full \
            --errors-for-leak-kinds=definite --show-leak-kinds=definite --fair-sched=yes "$out/$name-plain"
    done
else
    echo '  no valgrind: nothing is run under it'
fi
