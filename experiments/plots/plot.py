"""Error against n, one line a variant:  python3 experiments/plots/plot.py results/default.h5 error.png
Needs xarray, matplotlib and netCDF4 (or h5netcdf)."""
import sys

import matplotlib.pyplot as plt
import xarray as xr

runs = xr.open_dataset(sys.argv[1]).to_dataframe()
runs = runs[(runs.status == 0) & ~runs.causal.astype(bool) & runs.dataset.str.startswith("captured")]
error = runs.groupby(["n", "variant"]).err_rel_fro.median().unstack()
error.plot(loglog=True, marker="o", ylabel="relative error, median over settings and seeds")
plt.savefig(sys.argv[2])
