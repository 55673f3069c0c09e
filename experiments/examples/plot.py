#!/usr/bin/env python3
"""plot.py RESULTS.h5 PICTURE - the error of each variant, with its parameters, over the length of the sequence."""
import sys

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import xarray as xr

runs = xr.open_dataset(sys.argv[1]).to_dataframe()
runs = runs[runs.status == 0]
# A variant's parameters make it another setting, whose label says which: a median over variants would be a number that
# nobody measured.
error = runs.groupby(["dataset", "n", "label"]).err_rel_fro.median()
for dataset, of_dataset in error.groupby("dataset"):
    axes = of_dataset.droplevel("dataset").unstack().plot(loglog=True, marker="o", title=dataset)
    axes.set_ylabel("relative error")
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.15))
    name = dataset.split(":")[0]
    plt.savefig(sys.argv[2].replace(".", f"-{name}.", 1), bbox_inches="tight")
