// filters.js - which locks are shown, and in which order. The choice is part of the address, so a
// board can be bookmarked.
import { $, make } from './elements.js';
import { who } from './words.js';

const FIELDS = ['name', 'label', 'state', 'kind', 'host'];
const chosen = { name: '', label: '', state: '', kind: '', host: '', sort: '' };

// ---- The address ----

function read() {
  const [, query] = location.hash.split('?');
  const values = new URLSearchParams(query || '');
  for (const key in chosen) chosen[key] = values.get(key) || '';
  for (const field of FIELDS) $('f-' + field).value = chosen[field];
}

function write() {
  const values = new URLSearchParams(Object.entries(chosen).filter(([, value]) => value));
  const query = values.toString();
  history.replaceState(null, '', '#/' + (query ? '?' + query : ''));
}

// ---- Filtering ----

const contains = (text, part) => text.toLowerCase().includes(part.toLowerCase());
const rowsOf = (lock) => lock.holders.concat(lock.waiters);
const STATES = {
  held: (lock) => lock.holders.length > 0,
  waiting: (lock) => lock.waiters.length > 0,
  ending: (lock) => lock.isEnding,
  deadlock: (lock) => lock.isDeadlocked,
};

export function fits(lock) {
  const rows = rowsOf(lock);
  return contains(lock.name, chosen.name) && (STATES[chosen.state]?.(lock) ?? true) &&
    (!chosen.kind || rows.some((row) => row.kind === chosen.kind)) &&
    (!chosen.host || rows.some((row) => row.host === chosen.host)) &&
    (!chosen.label || rows.some((row) => contains(who(row), chosen.label)));
}

// ---- The order ----

const KEYS = {
  name: (lock) => lock.name,
  kind: (lock) => lock.kind,
  use: (lock) => -(lock.used / lock.capacity || 0),
  holder: (lock) => (lock.holders[0] ? who(lock.holders[0]) : '\uffff'),
  held: (lock) => -(lock.holders[0]?.sinceMs ?? -1),
  left: (lock) => lock.holders[0]?.leftMs ?? Infinity,
  waiting: (lock) => -lock.waiters.length,
  token: (lock) => Number(lock.holders[0]?.token || 0),
};
const compare = (a, b) => (a < b ? -1 : a > b ? 1 : 0);

// The chosen order; null: the most urgent lock first.
export function chosenOrder() {
  const key = KEYS[chosen.sort.replace(/^-/, '')], turn = chosen.sort.startsWith('-') ? -1 : 1;
  return key && ((a, b) => turn * compare(key(a), key(b)) || compare(a.name, b.name));
}

function showOrder() {
  for (const button of document.querySelectorAll('#locks button.sort')) {
    const { sort } = button.dataset, own = chosen.sort.replace(/^-/, '') === sort;
    const turned = chosen.sort.startsWith('-');
    button.parentElement.setAttribute('aria-sort', !own ? 'none' : turned ? 'descending' : 'ascending');
  }
}

// The hosts to choose from.
export function offerHosts(rows) {
  const hosts = [...new Set(rows.map((row) => row.host).filter(Boolean))].sort(), key = hosts.join('\n'), place = $('f-host');
  if (place.key === key) return;
  place.key = key;
  if (chosen.host && !hosts.includes(chosen.host)) hosts.push(chosen.host);
  place.replaceChildren(make('option', 'any host', { value: '' }), ...hosts.map((host) => make('option', host, { value: host })));
  place.value = chosen.host;
}

export const anyChosen = () => FIELDS.some((field) => chosen[field]);

// `changed` is called after every choice of the user.
export function prepareFilters(changed) {
  const done = () => { write(); showOrder(); changed(); };
  for (const field of FIELDS)
    $('f-' + field).addEventListener('input', (event) => { chosen[field] = event.target.value; done(); });
  for (const button of document.querySelectorAll('#locks button.sort'))
    button.addEventListener('click', () => {
      const { sort } = button.dataset;
      chosen.sort = chosen.sort === sort ? '-' + sort : chosen.sort === '-' + sort ? '' : sort;
      done();
    });
  $('f-clear').addEventListener('click', () => { for (const key in chosen) chosen[key] = ''; write(); read(); done(); });
}

export function readFilters() {
  read();
  showOrder();
}
