// theory.js - the page of attnlab theory: of each statement its promises as a table, and its plot.
'use strict';

const state = {at: ''};

function hashOf() {
  const chosen = [...hashOfZooms().map((zoom) => ['zoom', zoom]), ...(state.at ? [['at', state.at]] : [])];
  return new URLSearchParams(chosen).toString();
}

const textOfInterval = (figure) => (figure.low === figure.high ? figure.interval :
  `${asRatio(figure.low)} ... ${asRatio(figure.high)} (${figure.interval})`);

function promisesTable(statement) {
  const rows = statement.figures.filter((figure) => !figure.curve).map((figure) => [figure.what, significant(figure.value, 4),
    figure.relation && `${figure.relation} ${significant(figure.promised, 4)}`, figure.verdict, textOfInterval(figure)]);
  return table(`${statement.name}: what was measured`, ['measured', 'value', 'promised', 'verdict', 'interval'], rows);
}

// A curve for each name, in the order of the figures; those of what is promised are dashed and have no marks.
function drawStatement(statement) {
  const points = statement.figures.filter((figure) => figure.curve);
  const scheme = hues[isDark() ? 'dark' : 'light'];
  const sets = [...new Set(points.map((figure) => figure.curve))].map((name, i) => {
    const of = points.filter((figure) => figure.curve === name).map((figure) => ({x: number(figure.x), y: number(figure.value),
      lo: number(figure.low), hi: number(figure.high), note: `${asRatio(figure.x)}: ${significant(figure.value, 3)}`}));
    if (name.startsWith('promised')) return greyLine(name, of, {dash: '6 3'});
    return {label: name, group: name, color: scheme[i % scheme.length], shape: shapes[i % shapes.length], dash: '', width: 1.5, size: 4.5,
      joined: true, points: of};
  });
  plot(`${statement.name}-plot`, statement.name, sets, axis(statement.x, asRatio, {linear: statement.linear_x}),
    axis(statement.y, asError, {linear: statement.linear_y}));
}

function drawPlots() {
  for (const statement of data.statements) drawLater(`${statement.name}-plot`, () => drawStatement(statement));
}

function restore() {
  const hash = new URLSearchParams(location.hash.slice(1));
  readZooms(hash.getAll('zoom'));
  state.at = placeIn(hash);
  drawPlots();
  goToPlace();
}

function start() {
  const holding = data.statements.filter((statement) => statement.holds).length;
  byId('headline').textContent = `${holding} of ${data.statements.length} statements hold. Each is measured in fp64 on an input that meets its ` +
    'assumption, and on one that does not, where it must fail. Dashed grey: what is promised.';
  byId('statements').append(...data.statements.map((statement) => element('section', {id: statement.name}, element('h2', {}, statement.name),
    element('p', {class: statement.holds ? 'sentence' : 'sentence bad'}, `${statement.statement}${statement.holds ? '.' : ': does not hold.'}`),
    element('p', {class: 'note'}, `Where ${statement.assumption}; not of ${statement.otherwise}. ${statement.source}.`),
    element('div', {class: 'plot', id: `${statement.name}-plot`}), promisesTable(statement))));
  fillContents();
  makeLink();
  followMedia(drawPlots);
  followAddress(restore);
  restore();
}

start();
