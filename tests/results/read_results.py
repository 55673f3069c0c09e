#!/usr/bin/env python3
"""Opens a results file the way researchers do, and fails where that goes wrong.

usage: read_results.py RESULTS.h5 [ROWS]

Uses h5py and xarray if they are installed; says which were.
"""
import sys


def with_h5py(path, rows):
    import h5py

    with h5py.File(path, "r") as f:
        assert f.attrs["schema"].decode() == "attnlab-results", f.attrs["schema"]
        assert f.attrs["schema_version"] == 2
        n = f["run"].shape[0]
        assert rows is None or n == rows, (n, rows)
        checked = []

        def check(name, item):
            if isinstance(item, h5py.Dataset):
                checked.append(name)
                item[()]
                scale = item.attrs.get("CLASS") == b"DIMENSION_SCALE"
                for axis in range(item.ndim):
                    assert scale or len(item.dims[axis].keys()) == 1, (name, axis)

        f.visititems(check)
        assert {"key", "variant", "variant_id", "status", "time_median", "err_rel_fro", "verdict"} <= set(checked)
        meanings = f["variant_id"].attrs.get("flag_meanings", b"").decode().split()
        for number, name in zip(f["variant_id"][()], f["variant"].asstr()[()]):
            assert meanings[number] == name, (number, name)
        keys = list(f["key"].asstr()[()])
        assert keys == sorted(keys) and len(set(keys)) == len(keys)


def with_xarray(path, rows):
    import h5py
    import xarray

    with xarray.open_dataset(path) as ds:
        assert set(ds.sizes) == {"run"}, ds.sizes
        table = ds.to_dataframe()
        assert rows is None or len(table) == rows, (len(table), rows)
        assert {"variant", "n", "d", "seed"} <= set(ds.coords), list(ds.coords)
        assert ds["causal"].dtype == bool
        assert ds["time_median"].dtype == float
        assert ds["start_time"].dtype.kind == "M"
    with h5py.File(path, "r") as f:
        groups = [name for name in f if isinstance(f[name], h5py.Group)]
    for group in groups:
        with xarray.open_dataset(path, group=group) as ds:
            ds.load()


def main():
    path = sys.argv[1]
    rows = int(sys.argv[2]) if len(sys.argv) > 2 else None
    for name, read in (("h5py", with_h5py), ("xarray", with_xarray)):
        try:
            __import__(name)
            __import__("h5py")
        except ImportError:
            print(f"{name}: not installed")
            continue
        read(path, rows)
        print(f"{name}: ok")


main()
