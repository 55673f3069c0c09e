"""Error against n, a line for each variant and its parameters:
python3 experiments/plots/plot.py results/default.h5 error.png [DATASET]
Needs xarray, matplotlib and netCDF4 (or h5netcdf)."""
import sys

import matplotlib.pyplot as plt
import xarray as xr

runs = xr.open_dataset(sys.argv[1]).to_dataframe()
runs = runs[(runs.status == 0) & (runs.cache_state == 0) & ~runs.causal.astype(bool)]
dataset = sys.argv[3] if len(sys.argv) > 3 else runs.dataset.iloc[0]
runs = runs[runs.dataset == dataset]
print(f"{len(runs)} runs of {dataset}: {runs.err_rel_fro.min():.4g} to {runs.err_rel_fro.max():.4g}")
error = runs.groupby(["n", "label"]).err_rel_fro.median().unstack()
error.plot(loglog=True, marker="o", xlabel="n (length of the sequence)", title=dataset,
           ylabel="relative error, median over seeds")
plt.legend(fontsize=6, loc="upper left", bbox_to_anchor=(1, 1))
plt.xticks(error.index, error.index)
plt.minorticks_off()
plt.savefig(sys.argv[2], bbox_inches="tight")
