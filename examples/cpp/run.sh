#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# run.sh [read]: $EXAMPLE_FLAGS leads to the libraries of this tree; with IOVerbs installed, pkg-config does.
set -eu
command -v "${CXX:-c++}" >/dev/null || { echo "there is no C++ compiler" >&2 && exit 77; }
flags=${EXAMPLE_FLAGS:-$(pkg-config --cflags --libs ioverbs)}
# shellcheck disable=SC2086 # options are lists of words
[ -x simulation-cpp ] || "${CXX:-c++}" -std=c++17 -Wall -Wextra -O2 "$EXAMPLE/simulation.cpp" -o simulation-cpp $flags
exec ./simulation-cpp "$@"
