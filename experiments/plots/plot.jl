# Error against time, one series a variant:  julia experiments/plots/plot.jl results/default.h5 pareto.png
# Needs HDF5 and Plots. Not tried yet.
using HDF5, Plots
runs = h5open(ARGS[1]) do file
    Dict(name => read(file, name) for name in ("variant", "dataset", "n", "status", "time_median", "err_rel_fro"))
end
keep = (runs["status"] .== 0) .& startswith.(runs["dataset"], "captured") .& (runs["n"] .== maximum(runs["n"]))
scatter(runs["time_median"][keep], runs["err_rel_fro"][keep], group = runs["variant"][keep],
        xscale = :log10, yscale = :log10, xlabel = "seconds", ylabel = "relative error")
savefig(ARGS[2])
