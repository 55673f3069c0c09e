# Error against time at the largest n, one series a variant with its parameters:
#   julia experiments/plots/plot.jl results/default.h5 pareto.png [DATASET]
# Needs HDF5 and Plots. Not tried yet.
using HDF5, Plots
names = ("label", "dataset", "n", "causal", "status", "cache_state", "time_median", "err_rel_fro")
runs = h5open(file -> Dict(name => read(file, name) for name in names), ARGS[1])
keep = (runs["status"] .== 0) .& (runs["cache_state"] .== 0) .& (runs["causal"] .== 0) .& (runs["time_median"] .> 0)
dataset = length(ARGS) > 2 ? ARGS[3] : runs["dataset"][findfirst(keep)]
keep .&= runs["dataset"] .== dataset
keep .&= runs["n"] .== maximum(runs["n"][keep])
println(count(keep), " runs of ", dataset)
scatter(runs["time_median"][keep], runs["err_rel_fro"][keep], group = runs["label"][keep], title = dataset,
        xscale = :log10, yscale = :log10, xlabel = "time of one execution, s", ylabel = "relative error")
savefig(ARGS[2])
