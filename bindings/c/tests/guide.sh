#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# guide.sh: every piece of C and C++ in docs/guide/c.md stands, line by line, in a program that is compiled and run.
set -eu
cd "$(dirname "$0")/../../.."
page=docs/guide/c.md
awk -v page="$page" '
    function bare(line) { sub(/^[ \t]+/, "", line); sub(/[ \t]+$/, "", line); return line }
    FILENAME != page { programs = programs "\n" bare($0); next }
    /^```/ && !inside { inside = 1; wanted = ($0 == "```c" || $0 == "```cpp"); piece = ""; start = FNR; next }
    /^```/ {
        inside = 0
        if (wanted) {
            pieces++
            if (index(programs, piece "\n") == 0) {
                printf "%s:%d: this piece stands in none of the programs\n", page, start
                missing = 1
            }
        }
        next
    }
    inside { piece = piece "\n" bare($0) }
    END {
        if (pieces == 0) print page ": no pieces of C or C++ were found"
        exit missing || pieces == 0
    }
' examples/c/simulation.c examples/cpp/simulation.cpp bindings/c/tests/guide.c bindings/c/tests/cpp/guide.cpp \
    "$page" >&2
echo "  docs/guide/c.md says what the programs say"
