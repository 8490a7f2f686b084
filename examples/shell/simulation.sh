#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A simulation stores ten runs; then those that were hot are found and read back. With the argument `read` it only looks
# for what another program has stored.
set -eu

# The CRC-32 of standard input as a number: gzip ends with it, four bytes, the lowest first.
crc32() {
    gzip -1 -c | tail -c 8 | od -An -N4 -tu1 | { read -r a b c d; echo $((a + b * 256 + c * 65536 + d * 16777216)); }
}

# What run $1 computed: 1 MiB.
results() {
    awk -v run="$1" 'BEGIN { for (line = 0; line < 65536; line++) printf "run_%d %09d\n", run, line }'
}

if [ "${1:-}" != read ]; then
    iov ws create simulation --index temperature

    for i in 0 1 2 3 4 5 6 7 8 9; do
        results "$i" | iov put - "simulation/run_$i" \
            -m temperature=$((290 + 5 * i)) -m experiment=nacelle -m iteration="$i" -m crc32="$(results "$i" | crc32)"
    done
fi

# One line for each match: its address, a tab, and the key that was asked for.
iov find simulation 'temperature > 310 and experiment = "nacelle"' --order iov.name -k crc32 >matches

matches=0
total=0
while read -r address key; do
    iov get "$address" bytes
    crc=$(crc32 <bytes)
    if [ "crc32=$crc" != "$key" ]; then
        echo "$address has the checksum $crc, and was stored with $key" >&2
        exit 1
    fi
    size=$(($(wc -c <bytes)))
    printf '%s %d %08x\n' "${address#simulation/}" "$size" "$crc"
    matches=$((matches + 1))
    total=$((total + size))
done <matches
echo "$matches matches, $total bytes"
