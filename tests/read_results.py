"""Reads a results file back with h5py and xarray, whichever is installed: read_results.py FILE RUNS.
Exit code 77: neither is installed."""
import sys

path, runs = sys.argv[1], int(sys.argv[2])
readers = 0

try:
    import h5py
except ImportError:
    pass
else:
    readers += 1
    with h5py.File(path) as file:
        columns = {name: data for name, data in file.items() if isinstance(data, h5py.Dataset)}
        for name, data in columns.items():
            assert data.shape == (runs,), (name, data.shape)
            assert data.is_scale or len(data.dims[0]) == 1, f"{name} has no dimension scale"
        for name in ("key", "variant", "n", "status", "verdict", "err_rel_fro", "time_median", "p_window"):
            assert name in columns, name
        assert file.attrs["schema"] in (b"attnlab-results", "attnlab-results"), file.attrs["schema"]

try:
    import xarray
except ImportError:
    pass
else:
    readers += 1
    with xarray.open_dataset(path) as data:
        frame = data.to_dataframe()
        assert len(frame) == runs, len(frame)
        assert set(frame.variant) == {"full", "tiled", "longformer", "bigbird", "linformer", "performer"} | {
            name for name in frame.variant if name.startswith("null")
        }, set(frame.variant)
        exact = frame[(frame.status == 0) & frame.variant.isin(["full", "tiled"])]
        assert len(exact) and (exact.err_rel_fro < 2e-6).all() and (exact.time_median > 0).all()
    for group in ("bounds", "samples", "profile", "provenance"):
        xarray.open_dataset(path, group=group).close()

sys.exit(0 if readers else 77)
