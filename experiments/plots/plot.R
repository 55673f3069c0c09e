# Time against n, one line a variant:  Rscript experiments/plots/plot.R results/default.h5 time.pdf
# Needs ncdf4.
library(ncdf4)
arguments <- commandArgs(trailingOnly = TRUE)
file <- nc_open(arguments[1])
column <- function(name) as.vector(ncvar_get(file, name))
names <- c("variant", "dataset", "n", "causal", "status", "time_median", "err_rel_fro")
runs <- as.data.frame(setNames(lapply(names, column), names))
runs <- subset(runs, status == 0 & causal == 0 & startsWith(dataset, "captured"))
times <- tapply(runs$time_median, list(runs$n, runs$variant), median)
pdf(arguments[2])
matplot(as.numeric(rownames(times)), times, log = "xy", type = "b", pch = 1:ncol(times), xlab = "n", ylab = "seconds")
legend("topleft", colnames(times), col = 1:ncol(times), pch = 1:ncol(times), lty = 1:ncol(times))
