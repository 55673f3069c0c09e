# Time against n, a point a run, a colour a variant with its parameters:
#   attnlab export --csv results/default.h5 > runs.csv
#   gnuplot -e "csv='runs.csv'; out='time.png'" experiments/plots/plot.gp
# Another dataset than the first, with ; for its commas: -e "...; dataset='gaussian:std_q=1;std_k=1;std_v=1'"
set datafile separator comma
set datafile columnheaders
# gnuplot does not know the doubled quotes of CSV, cuts quoted texts at their commas, and lists at blanks.
runs = "< awk -F '\"' -v OFS= '{for (i = 2; i <= NF; i += 2) gsub(\",\", \";\", $i); gsub(\" \", \"_\")} 1' '" . csv . "'"
if (!exists("dataset")) dataset = ""
labels = " "
timed(seconds) = strcol("status") eq "ok" && strcol("cache_state") eq "warm" && column("causal") == 0 && seconds > 0
first(name) = dataset eq "" ? (dataset = name) : dataset
chosen(seconds) = timed(seconds) && first(strcol("dataset")) eq strcol("dataset") ? seconds : NaN
list(name) = strstrt(labels, " " . name . " ") ? labels : (labels = labels . name . " ")
noted(seconds) = seconds > 0 ? (list(strcol("label")), seconds) : NaN
stats runs using (noted(chosen(column("time_median")))) nooutput
print sprintf("%d runs of %s: %.4g to %.4g s", STATS_records, dataset, STATS_min, STATS_max)
set terminal png size 900,600
set output out
set title dataset noenhanced
set logscale x 2
set logscale y
set xlabel "n (length of the sequence)"
set ylabel "time of one execution, s"
set key outside right noenhanced
set offsets graph 0.05, graph 0.05, 0, 0
plot for [l in labels] runs using "n":(strcol("label") eq l ? chosen(column("time_median")) : NaN) \
  title l pointsize 1.5
