#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# run.sh [read]: $EXAMPLE_FLAGS leads to the libraries of this tree; with IOVerbs installed, pkg-config does.
set -eu
command -v "${CC:-cc}" >/dev/null || { echo "there is no C compiler" >&2 && exit 77; }
flags=${EXAMPLE_FLAGS:-$(pkg-config --cflags --libs ioverbs)}
# shellcheck disable=SC2086 # options are lists of words
[ -x simulation-c ] || "${CC:-cc}" -std=c11 -Wall -Wextra -O2 "$EXAMPLE/simulation.c" -o simulation-c $flags
exec ./simulation-c "$@"
