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
# gnuplot does not know the doubled quotes of CSV.
runs = "< sed 's/\"\"/~/g' " . csv
plot for [v in "full tiled longformer bigbird linformer performer"] runs \
  using "n":(strcol("variant") eq v && strcol("status") eq "ok" ? column("time_median") : NaN) title v
