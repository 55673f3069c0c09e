# Time against n, a point a run:
#   attnlab export --csv results/default.h5 > runs.csv
#   gnuplot -e "csv='runs.csv'; out='time.png'" experiments/plots/plot.gp
set datafile separator comma
set datafile columnheaders
set terminal png size 900,600
set output out
set logscale xy
set xlabel "n"
set ylabel "seconds"
set key left top
seconds(name) = strcol("variant") eq name && strcol("status") eq "ok" ? column("time_median") : NaN
plot for [name in "full tiled longformer bigbird linformer performer"] csv using (column("n")):(seconds(name)) title name
