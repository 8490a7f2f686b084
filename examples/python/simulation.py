# SPDX-License-Identifier: Apache-2.0
"""A simulation stores ten runs; then those that were hot are found and read back."""

from __future__ import annotations

import sys
from zlib import crc32

import ioverbs


def results(i: int) -> bytes:
    """What run `i` computed: 1 MiB."""
    return b"".join(b"run_%d %09d\n" % (i, line) for line in range(65_536))


def main() -> int:
    # Without a URL: the default store, $IOVERBS_URL.
    with ioverbs.open() as session:
        ws = session.workspace("simulation", exist_ok=False, indexes=["temperature"])

        for i in range(10):
            data = results(i)
            metadata = {
                "temperature": 290 + 5 * i,
                "experiment": "nacelle",
                "iteration": i,
                "crc32": crc32(data),
            }
            # The end of the block closes it: from then on everybody sees the bytes.
            with ws.create(f"run_{i}", metadata) as c:
                c.write(0, data)

        matches = total = 0
        found = ws.find("temperature > ? and experiment = ?", 310, "nacelle", order="iov.name", keys="crc32")
        for entry in found:
            with ws[entry.uuid] as c:
                data = c.read()
            crc = crc32(data)
            if crc != entry.metadata["crc32"]:
                print(f"{entry.name} has the checksum {crc}, not {entry.metadata['crc32']}", file=sys.stderr)
                return 1
            print(f"{entry.name} {len(data)} {crc:08x}")
            matches += 1
            total += len(data)
        print(f"{matches} matches, {total} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
