# SPDX-License-Identifier: Apache-2.0
"""Training from many small files: a PyTorch data set that is read in random order, each minibatch of it in one batch.

    python examples/python/training.py [FILES [EPOCHS]]

Uses the workspace `training` of the default store ($IOVERBS_URL), and makes what is not there. Without PyTorch it reads by itself.
"""

from __future__ import annotations

import random
import sys
import time
import zlib
from collections.abc import Iterator

from ioverbs.fs import IOVFileSystem

SIZE = 10_000
BATCH = 64


class Samples:
    """A data set that is asked for many samples at a time, so that a worker fetches a minibatch in one request instead of 64."""

    def __init__(self, fs: IOVFileSystem, paths: list[str]) -> None:
        # It travels to workers, by fork as well as by spawn: each opens a session of its own.
        self.fs = fs
        self.paths = paths

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, which: list[int]) -> list[bytes]:
        return self.fs.cat_ranges([self.paths[i] for i in which], None, None, on_error="raise")


def batches(count: int, seed: int) -> Iterator[list[int]]:
    """Minibatches of one epoch: each sample once, in another order each time."""
    order = list(range(count))
    random.Random(seed).shuffle(order)
    for i in range(0, count, BATCH):
        yield order[i : i + BATCH]


def loader(data: Samples, seed: int) -> Iterator[list[bytes]]:
    """The minibatches of an epoch, which two workers prefetch."""
    order = list(batches(len(data), seed))
    try:
        from torch.utils.data import DataLoader
    except ImportError:
        return (data[which] for which in order)
    # The sampler gives lists of numbers, so that the data set and not the loader puts a minibatch together.
    return iter(DataLoader(data, batch_size=None, sampler=order, num_workers=2, prefetch_factor=4))


def main() -> None:
    count, epochs = (int(text) for text in (*sys.argv[1:], *("2000", "2")[len(sys.argv) - 1 :]))
    fs = IOVFileSystem()
    fs.makedirs("training", exist_ok=True)
    paths = [f"training/samples/{i % 100:02}/{i:06}" for i in range(count)]
    made = [random.Random(i).randbytes(SIZE) for i in range(count)]
    if not fs.exists(paths[-1]):
        fs.pipe(dict(zip(paths, made, strict=True)))
    expected = sum(map(zlib.crc32, made))
    for epoch in range(epochs):
        begun = time.perf_counter()
        seen = sum(zlib.crc32(sample) for batch in loader(Samples(fs, paths), epoch) for sample in batch)
        took = time.perf_counter() - begun
        assert seen == expected, "not the bytes that were written"
        print(f"epoch {epoch}: {count} samples as written", flush=True)
        print(f"{count / took:.0f} samples a second", file=sys.stderr)


if __name__ == "__main__":
    main()
