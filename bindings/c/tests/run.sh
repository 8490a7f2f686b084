#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# run.sh [NAME…]: builds the shared library and runs the tests against it: the C programs, each compiled as C11 and as
# C++17; those of cpp/, compiled as C++17 and, where the compiler can, as C++20; guide.sh; and install.sh, which
# compiles against an installed tree. With names (batch, cpp/batch, guide.sh, install) only those. IOV_TEST_LONG=1
# repeats more. Sanitizers and valgrind are the business of asan.sh.
set -eu
cd "$(dirname "$0")/../../.."
target=${TARGET:-${CARGO_TARGET_DIR:-target}}
version=${VERSION:-$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)}
tests=bindings/c/tests
# Stamps of what was compiled and run lie apart from what cargo makes.
out=$target/c-tests
mkdir -p "$out/cpp"

# A debug build: its overflow checks and assertions are tests too.
CARGO_TARGET_DIR=$target cargo build --quiet -p iov-capi -p iovd
IOVERBS_IOVD=${IOVERBS_IOVD:-$(cd "$target" && pwd)/debug/iovd}
export IOVERBS_IOVD
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

# What a program is linked with besides the library.
extra=

# compile SOURCE PROGRAM COMPILER-AND-OPTIONS…
compile() {
    source=$1 program=$2
    shift 2
    # shellcheck disable=SC2086 # options are lists of words
    "$@" $warnings "$source" ${extra:+-x none $extra} -o "$out/$program" $link
}

# The example of a backend, to be linked in and to be loaded.
make_backend() {
    backend="-Wall -Wextra -Werror -O1 -fPIC -pthread -I bindings/c/include examples/backend/directory.c"
    # shellcheck disable=SC2086 # options are lists of words
    "${CC:-cc}" -std=gnu11 $backend -c -o "$out/directory.o"
    # shellcheck disable=SC2086
    "${CC:-cc}" -std=gnu11 $backend -shared -o "$out/directory.so"
    IOV_TEST_BACKEND=$(cd "$out" && pwd)/directory.so
    export IOV_TEST_BACKEND
}

# run SOURCE PROGRAM LANGUAGE
run() {
    echo "  ${1#"$tests/"} ($3)"
    # A program that hangs is a failure, not a long wait.
    timeout 300 "$out/$2" > "$out/$2.log" 2>&1 || {
        cat "$out/$2.log" >&2
        echo "$1 failed as $3" >&2
        exit 1
    }
    grep '^  *>' "$out/$2.log" || true
}

cpp20=
if echo 'int main() {}' | "${CXX:-c++}" -std=c++20 -x c++ -fsyntax-only - 2> /dev/null; then
    cpp20=yes
else
    echo "  ${CXX:-c++} does not know C++20: ioverbs.hpp is tested as C++17 only"
fi

[ $# -gt 0 ] || set -- "$tests"/*.c "$tests"/cpp/*.cpp guide.sh install
for name in "$@"; do
    name=${name#"$tests/"}
    case $name in
    guide.sh)
        "$tests/guide.sh"
        ;;
    install)
        "$tests/install.sh" "$target" "$out" "$version"
        ;;
    cpp/*)
        name=${name%.cpp}
        source=$tests/$name.cpp
        compile "$source" "$name-17" "${CXX:-c++}" -std=c++17
        run "$source" "$name-17" C++17
        [ -n "$cpp20" ] || continue
        compile "$source" "$name-20" "${CXX:-c++}" -std=c++20
        run "$source" "$name-20" C++20
        ;;
    *)
        name=${name%.c}
        source=$tests/$name.c
        case $name in
        backend)
            make_backend
            extra=$out/directory.o
            ;;
        *) extra= ;;
        esac
        compile "$source" "$name-c" "${CC:-cc}" -std=c11 -D_GNU_SOURCE
        compile "$source" "$name-cpp" "${CXX:-c++}" -std=c++17 -x c++
        run "$source" "$name-c" C
        case $name in
        litmus*) ;; # long, and about the library alone: the language of the header makes no difference
        *) run "$source" "$name-cpp" C++17 ;;
        esac
        ;;
    esac
done
