# SPDX-License-Identifier: Apache-2.0
"""What users bring along: pandas, PyArrow, xarray, Zarr, Dask, h5py and PyTorch on ``iov://``."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import ioverbs

fsspec = pytest.importorskip("fsspec")
np = pytest.importorskip("numpy")

from ioverbs.fs import IOVFileSystem  # noqa: E402

# What these packages warn of is theirs.
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture
def fs(shared_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[IOVFileSystem]:
    """The default store, with an empty workspace; who opens URLs finds the same."""
    monkeypatch.setenv("IOVERBS_URL", shared_url)
    fs = fsspec.filesystem("iov")
    fs.mkdir("w")
    yield fs
    fs.rm("w", recursive=True)


def test_pandas(fs: IOVFileSystem) -> None:
    pd = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    frame = pd.DataFrame({"id": np.arange(100_000), "value": np.random.default_rng(1).random(100_000)})
    for kind in ("parquet", "feather"):
        getattr(frame, f"to_{kind}")(f"iov:///w/d/frame.{kind}")
        pd.testing.assert_frame_equal(getattr(pd, f"read_{kind}")(f"iov:///w/d/frame.{kind}"), frame)
    frame.to_csv("iov:///w/frame.csv.gz", index=False)
    pd.testing.assert_frame_equal(pd.read_csv("iov:///w/frame.csv.gz"), frame)
    frame.head(1000).to_json("iov:///w/frame.json", orient="records", lines=True)
    assert len(pd.read_json("iov:///w/frame.json", lines=True)) == 1000
    frame.to_pickle("iov:///w/frame.pickle")
    pd.testing.assert_frame_equal(pd.read_pickle("iov:///w/frame.pickle"), frame)
    columns = pd.read_parquet("iov:///w/d/frame.parquet", columns=["value"])
    assert list(columns) == ["value"]
    with pytest.raises(FileNotFoundError):
        pd.read_csv("iov:///w/none.csv")


def test_pyarrow_datasets(fs: IOVFileSystem) -> None:
    pa = pytest.importorskip("pyarrow")
    import pyarrow.dataset as ds
    import pyarrow.fs

    table = pa.table({"part": np.repeat(np.arange(10), 1000), "x": np.arange(10_000)})
    ds.write_dataset(table, "w/set", format="parquet", partitioning=["part"], filesystem=fs)
    again = ds.dataset("w/set", partitioning=["part"], filesystem=fs)
    assert again.count_rows() == 10_000
    assert again.to_table(filter=ds.field("part") == 3)["x"].to_numpy().sum() == np.arange(3000, 4000).sum()
    handler = pyarrow.fs.PyFileSystem(pyarrow.fs.FSSpecHandler(fs))
    with handler.open_input_file("w/set/0/part-0.parquet") as f:
        assert f.read(4) == b"PAR1"
    assert len(handler.get_file_info(pyarrow.fs.FileSelector("w/set", recursive=True))) == 20


def test_zarr(fs: IOVFileSystem) -> None:
    zarr = pytest.importorskip("zarr")
    group = zarr.open_group("iov:///w/array.zarr", mode="w")
    data = np.arange(1000 * 1000, dtype="f4").reshape(1000, 1000)
    array = group.create_array("field", shape=data.shape, chunks=(100, 250), dtype="f4")
    array[:] = data
    array.attrs["unit"] = "K"
    again = zarr.open_group("iov:///w/array.zarr", mode="r")
    assert (again["field"][150:350, 10:20] == data[150:350, 10:20]).all()
    assert (again["field"][:] == data).all() and again["field"].attrs["unit"] == "K"
    array[0:100] = 0
    assert not zarr.open_array("iov:///w/array.zarr/field", mode="r")[50].any()
    with pytest.raises(FileNotFoundError):
        zarr.open_group("iov:///w/none.zarr", mode="r")


def test_xarray(fs: IOVFileSystem) -> None:
    xr = pytest.importorskip("xarray")
    pytest.importorskip("zarr")
    data = xr.Dataset(
        {"t": (("time", "x"), np.random.default_rng(2).random((20, 500)))},
        coords={"time": np.arange(20), "x": np.linspace(0, 1, 500)},
        attrs={"title": "run 7"},
    )
    data.to_zarr("iov:///w/run.zarr")
    xr.testing.assert_identical(xr.open_zarr("iov:///w/run.zarr").load(), data)
    more = data.assign_coords(time=data.time + 20)
    more.to_zarr("iov:///w/run.zarr", append_dim="time")
    assert xr.open_zarr("iov:///w/run.zarr").sizes["time"] == 40
    pytest.importorskip("h5netcdf")
    with fs.open("w/run.nc", "wb") as f:
        f.write(bytes(data.to_netcdf(engine="h5netcdf")))
    with fs.open("w/run.nc") as f:
        xr.testing.assert_identical(xr.open_dataset(f, engine="h5netcdf").load(), data)


def test_h5py(fs: IOVFileSystem) -> None:
    h5py = pytest.importorskip("h5py")
    with fs.open("w/a.h5", "w+b") as raw, h5py.File(raw, "w") as file:
        file["x"] = np.arange(300_000)
        file["x"].attrs["unit"] = "m"
    with fs.open("w/a.h5", "r+b") as raw, h5py.File(raw, "r+") as file:
        file["x"][10] = -1
        file["y"] = np.ones(5)
    with fs.open("w/a.h5") as raw, h5py.File(raw) as file:
        assert file["x"][9:12].tolist() == [9, -1, 11] and file["y"].shape == (5,)
        assert file["x"].attrs["unit"] == "m"


def test_dask(fs: IOVFileSystem) -> None:
    pytest.importorskip("dask")
    pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    import dask
    import dask.array as da
    import dask.bag as db
    import dask.dataframe as dd
    import pandas as pd

    frame = pd.DataFrame({"id": np.arange(10_000), "value": np.arange(10_000) % 7})
    with dask.config.set(scheduler="threads"):
        dd.from_pandas(frame, npartitions=4).to_parquet("iov:///w/parts")
        assert len(fs.glob("w/parts/*.parquet")) == 4
        assert dd.read_parquet("iov:///w/parts")["value"].sum().compute() == frame["value"].sum()
        dd.from_pandas(frame, npartitions=3).to_csv("iov:///w/csv/part-*.csv", index=False)
        assert len(dd.read_csv("iov:///w/csv/*.csv")) == 10_000
        db.from_sequence(["a", "b"]).to_textfiles("iov:///w/text/*.txt")
        assert db.read_text("iov:///w/text/*.txt").compute() == ["a", "b"]
    if pytest.importorskip("zarr"):
        da.ones((100, 100), chunks=(25, 50)).to_zarr("iov:///w/ones.zarr")
        assert da.from_zarr("iov:///w/ones.zarr").sum().compute(scheduler="processes") == 10_000


def test_caches_of_fsspec_before_it(fs: IOVFileSystem, tmp_path: Path) -> None:
    fs.pipe_file("w/a", b"cached")
    for chain in ("simplecache", "filecache", "blockcache"):
        options = {chain: {"cache_storage": str(tmp_path / chain)}}
        with fsspec.open(f"{chain}::iov:///w/a", **options) as f:
            assert f.read() == b"cached"
    mapper = fsspec.get_mapper("iov:///w/map")
    mapper["x/y"] = b"1"
    assert dict(mapper) == {"x/y": b"1"} and "z" not in mapper
    del mapper["x/y"]
    assert list(mapper) == []


EXAMPLES = Path(__file__).resolve().parents[3] / "examples" / "python"


def test_the_example_of_tables_and_fields(fs: IOVFileSystem, shared_url: str) -> None:
    for package in ("pandas", "pyarrow", "xarray", "zarr", "dask"):
        pytest.importorskip(package)
    command = [sys.executable, "-W", "ignore", str(EXAMPLES / "data.py")]
    for _ in range(2):
        done = subprocess.run(command, env=os.environ | {"IOVERBS_URL": shared_url}, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
        assert done.stdout.splitlines() == [
            "0.6065",
            "348 steps above 0.5",
            "[290.0, 291.0, 292.0]",
            "['2.parquet', '3.parquet']",
        ]
    fs.rm("data", recursive=True)


def interpreters() -> dict[str, str]:
    """This interpreter, and Debian's if that has PyTorch, which `make test-long` installs."""
    found = {"without": sys.executable}
    debian = "/usr/bin/python3"
    if subprocess.run([debian, "-c", "import torch, fsspec"], capture_output=True).returncode == 0:
        found["with"] = debian
    return found


@pytest.mark.parametrize("torch", ["without", "with"])
def test_training(fs: IOVFileSystem, shared_url: str, torch: str) -> None:
    """Workers that were forked from a program which has a session, each minibatch in one batch."""
    if (python := interpreters().get(torch)) is None:
        pytest.skip("PyTorch is not there: make test-long installs it")
    package = Path(ioverbs.__file__).parents[1]
    environment = os.environ | {"IOVERBS_URL": shared_url, "PYTHONPATH": str(package)}
    command = [python, str(EXAMPLES / "training.py"), "300", "2"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [f"epoch {i}: 300 samples as written" for i in range(2)]
    fs.rm("training", recursive=True)
