# Time against n, a line for each variant and its parameters:
#   Rscript experiments/plots/plot.R results/default.h5 time.pdf [DATASET]
# Needs ncdf4.
library(ncdf4)
arguments <- commandArgs(trailingOnly = TRUE)
file <- nc_open(arguments[1])
problem <- c("d", "d_v", "heads", "kv_heads", "batch", "dtype", "threads", "isa", "score", "mask")
names <- c("label", "dataset", "n", "n_kv", "causal", "status", "cache_state", "time_median", problem)
runs <- as.data.frame(setNames(lapply(names, function(name) as.vector(ncvar_get(file, name))), names))
# Null baselines have an error but no time.
runs <- subset(runs, status == 0 & cache_state == 0 & causal == 0 & !is.na(time_median))
chosen <- if (length(arguments) > 2) arguments[3] else runs$dataset[1]
runs <- subset(runs, dataset == chosen)
cat(sprintf("%d runs of %s: %.4g to %.4g s\n", nrow(runs), chosen, min(runs$time_median), max(runs$time_median)))
# The median is over seeds, which are no part of a label; where problems differ, what does is a part of the line's name.
runs$keys <- ifelse(runs$n_kv == runs$n, "", runs$n_kv)
differ <- Filter(function(name) length(unique(runs[[name]])) > 1, c(problem, "keys"))
runs$label <- do.call(paste, runs[c("label", differ)])
times <- tapply(runs$time_median, list(runs$n, runs$label), median)
looks <- seq_len(ncol(times))
pdf(arguments[2])
matplot(as.numeric(rownames(times)), times, log = "xy", type = "b", lty = 1, pch = looks, col = looks, main = chosen,
        xaxt = "n", xlab = "n (length of the sequence)", ylab = "time of one execution, s, median over seeds")
axis(1, as.numeric(rownames(times)))
legend("topleft", colnames(times), lty = 1, pch = looks, col = looks, cex = 0.5)
