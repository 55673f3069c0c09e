// theory.js - the page of attnlab theory: of each statement its promises as a table, and its plot.
'use strict';

const statements = [...new Set(data.rows.map((figure) => figure.theory))].map((name) => {
  const figures = data.rows.filter((figure) => figure.theory === name);
  return {...figures[0], figures, holds: figures.every((figure) => figure.holds)};
});

const intervalText = (figure) => (figure.low === figure.high ? figure.interval :
  `${asRatio(figure.low)} ... ${asRatio(figure.high)} (${figure.interval})`);
const promisedText = ({relation, promised, tolerance}) =>
  relation && `${relation} ${significant(promised, 4)}${tolerance ? ` ± ${significant(tolerance, 1)}` : ''}`;

function promisesTable(statement) {
  const rows = statement.figures.filter((figure) => !figure.curve).map((figure) => [figure.what,
    significant(figure.value, Number.isInteger(figure.value) ? 9 : 4),
    promisedText(figure), figure.verdict, intervalText(figure)]);
  return table(`${statement.theory}: what was measured`, ['measured', 'value', 'promised', 'verdict', 'interval'], rows);
}

// Logarithmic where all values are above 0 and spread.
function axisOf(title, text, values) {
  const least = Math.min(...values), most = Math.max(...values), room = 0.03 * (most - least || 1);
  return axis(title, text, least > 0 && most > 5 * least ? {} : {linear: true, min: least - room, max: most + room});
}

// A curve for each name, in the order of the figures; what is promised is dashed and has no marks.
function drawStatement(statement) {
  const points = statement.figures.filter((figure) => figure.curve), scheme = hues[isDark() ? 'dark' : 'light'];
  const sets = [...new Set(points.map((figure) => figure.curve))].map((name, i) => {
    const of = points.filter((figure) => figure.curve === name).map(({x, value, low, high}) => ({x: number(x), y: number(value),
      lo: number(low), hi: number(high), note: `${asRatio(x)}: ${significant(value, 3)}`}));
    return name.startsWith('promised') ? greyLine(name, of, {dash: '6 3'}) : {label: name, group: name, color: scheme[i % scheme.length],
      shape: shapes[i % shapes.length], dash: '', width: 1.5, size: 4.5, joined: true, points: of};
  });
  const marks = sets.flatMap((set) => set.points);
  plot(`${statement.theory}-plot`, statement.theory, sets, axisOf(statement.x_axis, asRatio, marks.map(({x}) => x)),
    axisOf(statement.y_axis, asError, marks.map(({y}) => y)));
}

function drawPlots() {
  for (const statement of statements) drawLater(`${statement.theory}-plot`, () => drawStatement(statement));
}

function start() {
  byId('headline').textContent = `${statements.filter(({holds}) => holds).length} of ${statements.length} statements hold. Each is measured in ` +
    'fp64 on an input that meets its assumption, and on one that does not, where it must fail. Dashed grey: what is promised.';
  byId('results').append(...statements.map((statement) => element('section', {id: statement.theory}, element('h2', {}, statement.theory),
    element('p', {class: statement.holds ? 'sentence' : 'sentence bad'}, `${statement.statement}${statement.holds ? '.' : ': does not hold.'}`),
    element('p', {class: 'note'}, `Assumes that ${statement.assumption}; fails on ${statement.otherwise}. ${statement.source}.`),
    element('div', {class: 'plot', id: `${statement.theory}-plot`}), promisesTable(statement))));
  showPage();
}

start();
