#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# install.sh TARGET FOLDER VERSION: `make install` from a debug build, then programs in C and C++ compiled against the
# installed tree, found by pkg-config and by CMake, shared and static, and run. TARGET is cargo's folder, FOLDER has the
# shared library, and gets the programs.
set -eu
cd "$(dirname "$0")/../../.."
target=$1 out=$2 version=$3
sources=$PWD/bindings/c/tests/install
work=$(cd "$out" && pwd)/install
rm -rf "$work"

# As `make build` leaves it, but with what the debug build made.
mkdir -p "$work/made/release"
ln "$out/libioverbs.so.$version" "$work/made/release/" 2> /dev/null \
    || cp "$out/libioverbs.so.$version" "$work/made/release/"
ln -s "$(realpath "$target/debug/libioverbs_capi.a")" "$work/made/release/libioverbs_capi.a"

# installed FOLDER MAKE-VARIABLE…: the tree in FOLDER has every header, byte by byte
installed() {
    folder=$1
    shift
    make --silent install TARGET="$work/made" VERSION="$version" "$@" > "$work/log" 2>&1 || {
        cat "$work/log" >&2
        exit 1
    }
    diff -r bindings/c/include "$folder/include" >&2
}

# check COMMAND…: it must say what both programs say
check() {
    said=$(LD_LIBRARY_PATH=$libraries "$@")
    [ "$said" = "stored and read: ioverbs $version" ] || {
        echo "$*: said $said" >&2
        exit 1
    }
}

# A prefix that the program knows; DESTDIR=/ so that the machine's linker cache is left alone.
prefix=$work/prefix
installed "$prefix" PREFIX="$prefix" DESTDIR=/
libraries=$prefix/lib
if command -v pkg-config > /dev/null; then
    echo '  installed, by pkg-config (C, C++17)'
    flags=$(PKG_CONFIG_PATH=$prefix/lib/pkgconfig pkg-config --cflags --libs "ioverbs >= $version")
    # shellcheck disable=SC2086 # options are lists of words
    "${CC:-cc}" -std=c11 "$sources/main.c" -o "$work/pc-c" $flags
    # shellcheck disable=SC2086
    "${CXX:-c++}" -std=c++17 "$sources/main.cpp" "$sources/other.cpp" -o "$work/pc-cpp" $flags
    check "$work/pc-c"
    check "$work/pc-cpp"
    if PKG_CONFIG_PATH=$prefix/lib/pkgconfig pkg-config --exists 'ioverbs > 1000'; then
        echo 'pkg-config has a version of ioverbs that is none' >&2
        exit 1
    fi
else
    echo '  no pkg-config: ioverbs.pc is not tested'
fi

# A staged tree as packagers make it, with a library folder of the Debian kind; found where it was moved to.
stage=$work/stage
installed "$stage/opt/ioverbs" PREFIX=/opt/ioverbs DESTDIR="$stage" LIBDIR=/opt/ioverbs/lib/some-linux-gnu
mv "$stage/opt/ioverbs" "$work/moved"
libraries=$work/moved/lib/some-linux-gnu
if command -v cmake > /dev/null; then
    echo '  installed, by CMake (C, C++17, shared, static)'
    {
        cmake -S "$sources" -B "$work/cmake" -Dioverbs_DIR="$libraries/cmake/ioverbs" -DIOVERBS_WANTED="$version" &&
            cmake --build "$work/cmake"
    } > "$work/log" 2>&1 || {
        cat "$work/log" >&2
        exit 1
    }
    for program in shared-c static-c shared-cpp; do
        check "$work/cmake/$program"
    done
    if cmake -S "$sources" -B "$work/cmake-later" -Dioverbs_DIR="$libraries/cmake/ioverbs" -DIOVERBS_WANTED=1000 \
        > "$work/log" 2>&1; then
        echo 'CMake has found a version of ioverbs that is none' >&2
        exit 1
    fi
else
    echo '  no cmake: find_package(ioverbs) is not tested'
fi
rm -rf "$work"
