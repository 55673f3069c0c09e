// pages.js - what every page has: contents, choices, its address, and forms for paper and other widths.
'use strict';

// A list that opens, of many values, the numbers in them in their order.
function list(name, values, chosen, onChange) {
  const sorted = values.map(String).sort(new Intl.Collator('en', {numeric: true}).compare);
  const box = element('select', {name: `choice-${name}`}, ...sorted.map((value) => element('option', {value}, value)));
  box.value = String(chosen);
  box.addEventListener('change', () => onChange(box.value));
  return box;
}

function choices(name, title, values, chosen, onChange) {
  const set = element('fieldset', {id: `choice-${name}`}, element('legend', {}, title));
  if (values.length > 8) {
    set.append(list(name, values, chosen, onChange));
    set.lastChild.setAttribute('aria-label', title);
    return set;
  }
  for (const value of values) {
    const box = element('input', {type: 'radio', name: `choice-${name}`, value: String(value)});
    box.checked = String(value) === String(chosen);
    box.addEventListener('change', () => onChange(String(value)));
    set.append(values.length > 1 ? element('label', {}, box, ` ${value}`) : element('span', {}, String(value)));
  }
  return set;
}

function fillContents() {
  byId('contents').append(...[...document.querySelectorAll('main section')].map((section) =>
    element('li', {}, element('a', {href: `#${section.id}`}, section.querySelector('h2').textContent))));
}

// ---- the address: what the reader chose stands after its #, as hashOf() of the page says ----------------

function writeHash() {
  const hash = hashOf();
  if ((hash || location.hash.includes('=')) && location.hash.slice(1) !== hash) history.replaceState(null, '', `#${hash}`);
}

// A button that copies the address, or shows it where the browser has no clipboard for this page.
function makeLink() {
  const button = element('button', {type: 'button', id: 'copy-link'}, 'Copy link to this view'), said = element('span', {role: 'status', class: 'note'});
  button.addEventListener('click', async () => {
    try {
      await navigator.clipboard.writeText(location.href);
      said.textContent = 'Copied.';
    } catch {
      said.textContent = location.href;
    }
  });
  byId('link').append(button, ' ', said);
}

// The part of the page that the address asks for.
const placeIn = (hash) => hash.get('at') || (byId(location.hash.slice(1)) ? location.hash.slice(1) : '');

function goTo(id) {
  const place = byId(id);
  if (!place) return;
  place.closest('details')?.setAttribute('open', '');
  if (!place.hasAttribute('tabindex')) place.setAttribute('tabindex', '-1');
  place.focus({preventScroll: true});
  place.scrollIntoView();
}

// Links within the page keep what was chosen. restore: draws what the address says.
function followAddress(restore) {
  document.addEventListener('click', (event) => {
    const link = event.target.closest('a[href^="#"]');
    if (!link) return;
    event.preventDefault();
    state.at = link.hash.slice(1);
    writeHash();
    goTo(state.at);
  });
  addEventListener('hashchange', () => location.hash.slice(1) !== hashOf() && restore());
}

// Once all is drawn, whose heights say where the part is.
function goToPlace() {
  if (!state.at) return;
  drawAll();
  goTo(state.at);
}

// Redraws in the colours of the screen, at its width, and for paper, where all tables but the columns of every run are open.
function followMedia(draw, drawForPaper = draw) {
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', draw);
  let width = innerWidth, opened = [];
  addEventListener('resize', () => {
    if (width !== innerWidth && !printing) drawForPaper();
    width = innerWidth;
  });
  addEventListener('beforeprint', () => {
    printing = true;
    drawForPaper();
    drawAll();
    opened = [...document.querySelectorAll('details:not([open], .every-column, #methods)')];
    opened.forEach((details) => { details.open = true; });
  });
  addEventListener('afterprint', () => {
    printing = false;
    opened.forEach((details) => { details.open = false; });
    drawForPaper();
  });
}
