// model_plots.js - the plots of an evaluation: what each shows of the chosen model, task, length and place.
'use strict';

const good = (run) => run.status === 'ok';
const labelOf = (run) => data.lines[run.line].label;
const methodOf = (run) => data.lines[run.line].method;

// What the first so many menus say, for the head of a plot.
const about = (count) => menus.slice(0, count).map(([name]) => (name === 'n' ? `n = ${state[name]}` : state[name])).join(', ');

// A divergence of rounding alone. Such points lie on the lower edge, so that the others have room.
const floor = 1e-6;

// A curve for each method of these runs, its settings in the order of x.
function methodCurves(runs, x, y, note, options = {}) {
  return [...new Set(runs.map(methodOf))].map((method) => {
    const found = runs.filter((run) => methodOf(run) === method).sort((a, b) => number(x(a)) - number(x(b)));
    const points = found.map((run) => ({x: number(x(run)), ...y(run), label: labelOf(run), note: note(run)}));
    return curve(found[0].line, points, options);
  });
}

function klOf(run) {
  const [y, lo, hi] = [run.kl, run.kl_lo, run.kl_hi].map(number);
  return y < floor ? {y: floor} : {y, lo, hi};
}
const klNote = (run) => `KL ${asInterval([run.kl, run.kl_lo, run.kl_hi], asError)}, ${asShare(run.density)} read`;

// The exact model's value over the width of the points.
function exactLine(sets, value) {
  const {min, max} = limits(sets.flatMap((set) => set.points.map((point) => point.x)));
  return [greyLine('exact model', [{x: min, y: value}, {x: max, y: value}], {dash: '6 3'})];
}

function readsPlots(runs) {
  plot('reads-plot', 'Divergence against pairs read', methodCurves(runs, (run) => run.density, klOf, klNote), axis('causal pairs read', asShare),
    axis('KL, nats a token', asError, {edge: floor}), about(5));
  plot('time-plot', 'Divergence against time', methodCurves(runs, (run) => run.attention_time, klOf,
    (run) => `${klNote(run)}, ${asTime(run.attention_time)}`), axis('time in the variant', asTime), axis('KL, nats a token', asError, {edge: floor}), about(5));
}

function cachePlot(runs) {
  plot('cache-plot', 'Divergence against the bits of a cache', methodCurves(runs, (run) => run.kv_bits, klOf,
    (run) => `KL ${asInterval([run.kl, run.kl_lo, run.kl_hi], asError)}, ${asRatio(run.kv_bits)} bits`), axis('bits an element', asRatio),
  axis('KL, nats a token', asError, {edge: floor}), about(5));
}

function answersPlot(runs) {
  const sets = methodCurves(runs, (run) => run.density, (run) => ({y: number(run.right)}),
    (run) => `${asShare(run.right)} right, all in ${asShare(run.score)} of the windows`);
  const exact = runs.length ? exactLine(sets, number(runs[0].right_exact)) : [];
  plot('answers-plot', 'Right tokens against pairs read', [...sets, ...exact], axis('causal pairs read', asShare), shares('right'), about(5));
}

// Bins are powers of n; x is where a bin ends.
const binEnd = (n, bin, bins) => n ** ((bin + 1) / bins);

function positionPlot(runs) {
  const point = (run, value, bin, all) => ({x: binEnd(run.n, bin, all.length), y: value,
    note: `up to position ${Math.round(binEnd(run.n, bin, all.length))}: ${significant(value, 3)}`});
  const sets = runs.map((run) => series(run.line, run.by_position.nll.map((value, bin, all) =>
    point(run, number(value) + number(run.by_position.dnll[bin]), bin, all)), {size: 2}));
  const exact = runs.length ? [greyLine('exact model', runs[0].by_position.nll.map((value, bin, all) => point(runs[0], number(value), bin, all)))] : [];
  plot('position-plot', 'Loss against position', [...sets, ...exact], axis('position', asRatio), axis('nats a token', asRatio), about(5));
}

function lengthPlot(runs) {
  const sizes = [...new Set(runs.map((run) => run.n))].sort((a, b) => a - b);
  const lines = [...new Set(runs.map((run) => run.line))];
  plot('length-plot', 'Divergence against n', lines.map((line) => series(line, runs.filter((run) => run.line === line)
    .sort((a, b) => a.n - b.n).map((run) => ({x: run.n, ...klOf(run), note: `n = ${run.n}: ${klNote(run)}`})))),
  axis('n (positions of a window)', String, {values: sizes}), axis('KL, nats a token', asError, {edge: floor}), `${about(3)}, ${state.where}`);
}

function relationPlot(runs) {
  const found = runs.filter((run) => number(run.attention_error) > rounding && number(run.kl) > floor);
  const sets = methodCurves(found, (run) => run.attention_error, klOf,
    (run) => `${run.task}, n = ${run.n}: error ${asError(run.attention_error)}, KL ${asError(run.kl)}`, {joined: false});
  // Through the median of KL / error^2.
  const slopes = found.map((run) => number(run.kl) / number(run.attention_error) ** 2).sort((a, b) => a - b);
  const {min, max} = limits(found.map((run) => number(run.attention_error)));
  const law = found.length ? [greyLine('slope 2', [min, max].map((x) => ({x, y: slopes[slopes.length >> 1] * x * x})))] : [];
  plot('relation-plot', 'Divergence against attention\'s error', [...sets, ...law], axis('relative error of attention', asError),
    axis('KL, nats a token', asError, {edge: floor}), about(1));
}

// everywhere: runs whose replaced layers are all; single: one layer each.
function layersPlots(everywhere, single) {
  const layers = Math.max(2, ...everywhere.map((run) => run.by_layer.error.length));
  const place = () => axis('layer', String, {linear: true, min: -0.5, max: layers - 0.5, values: Array.from({length: layers}, (_, i) => i)});
  plot('layers-plot', 'Error of each layer\'s attention', everywhere.map((run) => series(run.line, run.by_layer.error.map((value, layer) =>
    ({x: layer, y: number(value) < rounding ? NaN : number(value), note: `layer ${layer}: ${asError(value)}`})))), place(),
  axis('relative error', asError), about(5));
  const lines = [...new Set(single.map((run) => run.line))];
  plot('each-plot', 'Divergence if one layer is replaced', lines.map((line) => series(line, single.filter((run) => run.line === line)
    .sort((a, b) => a.layers - b.layers).map((run) => ({x: Number(run.layers), ...klOf(run), note: `layer ${run.layers}: ${klNote(run)}`})))),
  place(), axis('KL, nats a token', asError, {edge: floor}), about(4));
}
