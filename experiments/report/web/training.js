// training.js - the page of attnlab train: of each task the learning curves, and what the variants cost.
'use strict';

const groupsBy = (rows, name) => [...new Set(rows.map((row) => row[name]))].map((value) => rows.filter((row) => row[name] === value));
const variantNames = [...new Set(data.rows.map((row) => row.variant))];
// [models of each variant] of each task; exact attention is the first variant.
const tasks = groupsBy(data.rows, 'task').map((rows) => ({...rows[0], variants: groupsBy(rows, 'spec')}));

const ofShares = (value) => number(value).toFixed(3);
const signed = (value) => (number(value) > 0 ? `+${ofShares(value)}` : ofShares(value));
const sorted = (models, get) => models.map((model) => number(get(model))).filter(Number.isFinite).sort((a, b) => a - b);
const median = (values) => (values.length ? (values[(values.length - 1) >> 1] + values[values.length >> 1]) / 2 : NaN);
const medianOf = (models, name) => median(sorted(models, (model) => model[name]));

// The median over the seeds between the least and the largest; of exact attention wide, and in the colour of text.
function curveOf(models, i) {
  const [{label, steps, curves, variant}] = models, scheme = hues[isDark() ? 'dark' : 'light'];
  const points = curves.map((_, span) => {
    const losses = sorted(models, (model) => model.curves[span]), x = (span + 1) / curves.length * steps;
    const y = median(losses), lo = losses[0], hi = losses[losses.length - 1];
    return {x, y, lo, hi, note: `${asInterval([y, lo, hi], asRatio)} nats, to step ${Math.ceil(x)}`};
  });
  const look = i ? {label, color: scheme[variantNames.indexOf(variant) % scheme.length], size: 2, width: 1} :
    {label: `${label} (exact)`, color: ink('text'), size: 2.5, width: 2};
  return {group: label, shape: shapes[i % shapes.length], dash: '', joined: true, points, ...look};
}

function drawTask({task, steps, variants: all}) {
  plot(`${task}-plot`, `Loss of ${task}`, all.map(curveOf), axis('steps', asRatio, {linear: true, min: 0, max: steps * 1.01}),
    axis('nats a scored position', asError), all[0].length > 1 ? `median of ${all[0].length} seeds, and their range` : '');
}

function drawPlots() {
  for (const task of tasks) drawLater(`${task.task}-plot`, () => drawTask(task));
}

function taskTable(task) {
  const rows = task.variants.map((models, i) => {
    const [{label, difference, difference_lo: lo, difference_hi: hi, p_value: p, word}] = models;
    return [label, ofShares(medianOf(models, 'accuracy')), asRatio(medianOf(models, 'loss')), i ? signed(difference) : '',
      i && number(lo) <= number(hi) ? `${signed(lo)} ... ${signed(hi)}` : '', i ? significant(p, 2) : '', word,
      ofShares(medianOf(models, 'swapped_accuracy')), asRatio(medianOf(models, 'swapped_loss'))];
  });
  return table(`${task.task}: accuracy and loss`, ['variant', 'accuracy', 'loss', 'difference', '95 % interval', 'p', 'word', 'swapped', 'its loss'], rows);
}

function start() {
  const seeds = tasks[0].variants[0].length, later = tasks[0].variants.map(([model]) => model).filter((model) => model.later);
  byId('headline').textContent = 'Small models were trained with each variant as their attention, and with exact attention, from the same weights on ' +
    `the same data (${seeds} ${seeds > 1 ? 'seeds' : 'seed'}), and answered the same new sequences.`;
  byId('results').append(element('section', {id: 'measured'}, element('h2', {}, 'What is measured, and under which assumptions'),
    element('p', {}, 'Accuracy is the share of scored positions that are right, loss is in nats a position: medians over the seeds. The difference is the ' +
      'mean, over the seeds, of a variant\'s accuracy less exact attention\'s of the same seed. Its interval and p are Student\'s, paired: they assume that ' +
      'seeds are independent, which they are, and that differences are about normal, which they are not where some seeds learn a task and others do not, as the ' +
      'ranges of the curves show; fewer than eight seeds have none. A variant is worse or better at 5 % ' +
      'after Holm\'s correction over the variants of the task; open means that these seeds do not decide, not that there is no difference. Swapped: trained ' +
      'with exact attention, and tested with the variant.'),
    element('p', {}, 'A task\'s steps and rate of learning are those in which exact attention learns it; a variant may do better with others. What holds for ' +
      'models of this size need not hold for larger ones.'),
    ...later.map((model) => element('p', {class: 'later'}, `${model.label}: answers may depend on later tokens, and so on what is asked for: ${model.later}.`))),
  ...tasks.map((task) => element('section', {id: task.task}, element('h2', {}, task.task),
    element('p', {class: 'note'}, `${task.about}; a guess is right with probability ${asRatio(task.chance)}. ${task.steps} steps.`),
    element('div', {class: 'plot', id: `${task.task}-plot`}), taskTable(task))));
  showPage();
}

start();
