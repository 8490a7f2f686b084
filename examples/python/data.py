# SPDX-License-Identifier: Apache-2.0
"""Tables and fields where they are: pandas, xarray with Zarr, and Dask on `iov://`, and a search for what they have written.

    pip install './bindings/python[fsspec]' pandas pyarrow xarray zarr 'dask[dataframe]'
    python examples/python/data.py

Uses the workspace `data` of the default store ($IOVERBS_URL), and makes it if it is not there.
"""

from __future__ import annotations

import dask.dataframe as dd
import fsspec
import numpy as np
import pandas as pd
import xarray as xr

import ioverbs


def main() -> None:
    fs = fsspec.filesystem("iov")
    if not fs.exists("data"):
        fs.mkdir("data")

    # A table for each run, as parquet; what is known of a run goes along, to be searched for.
    for run in range(4):
        table = pd.DataFrame({"step": np.arange(1000), "residual": np.exp(-np.arange(1000) / (50 * (run + 1)))})
        with fs.open(f"data/runs/{run}.parquet", "wb", metadata={"run": run, "temperature": 290 + 10 * run}) as f:
            table.to_parquet(f)
    print(pd.read_parquet("iov:///data/runs/3.parquet", columns=["residual"]).residual.iloc[100].round(4))

    # All of them at once.
    print(int(dd.read_parquet("iov:///data/runs").residual.gt(0.5).sum().compute()), "steps above 0.5")

    # A field that grows: each time step is appended in place.
    for step in range(3):
        field = xr.Dataset({"t": (("time", "x"), np.full((1, 100), 290.0 + step))}, coords={"time": [step]})
        field.to_zarr("iov:///data/field.zarr", **({"append_dim": "time"} if step else {"mode": "w"}))
    print(xr.open_zarr("iov:///data/field.zarr").t.mean("x").values.tolist())

    # What the tables are of is in the store, and not in their names.
    ws = ioverbs.open().workspace("data", create=False)
    print([entry.name for entry in ws.find("temperature > 305", order="iov.name")])


if __name__ == "__main__":
    main()
