"""The reading half of the demo: finds the shorelines by metadata, reads them, compares what was stored with what came."""

import hashlib

import ioverbs


def main() -> None:
    with ioverbs.open() as session:
        ws = session.workspace("shorelines", create=False)
        total = 0
        for entry in ws.find('format = "NetCDF"', order="iov.name", keys="*"):
            with ws[entry.uuid] as c:
                data = c.read()
            found = hashlib.sha256(data).hexdigest()
            if found != entry.metadata["sha256"]:
                raise SystemExit(f"{entry.name}: the bytes differ: {found} is not {entry.metadata['sha256']}")
            total += len(data)
            print(f"  {entry.name:20} {entry.metadata['resolution']:13} {len(data):>9,} bytes  {data[:4]!r}  checksum ok")
        print(f"  {total:,} bytes in all, moved by this process itself: {session.counters()['bytes_direct']:,}")


if __name__ == "__main__":
    main()
