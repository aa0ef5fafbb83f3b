// now.js - the view Now: how many, what is wrong, and a row for every lock, trouble first.
import { $, drain, keepRows, make, makeBar, makeRow, makeTicking, setText } from './elements.js';
import { leftOf, locks, longestWait, partOf, sinceOf, state } from './stream.js';
import { clock, duration, where, who } from './words.js';

const LOW_PART = 0.2;
const LONG_WAIT_MS = 30000;
const TOLD_MS = 60000; // how long a loss stays in the list
const TROUBLES_MAX = 20;

// ---- The table ----

const inSight = new Set(); // rows that are drawn at all: only there time goes by

function look(parts, seen) {
  if (!seen) { inSight.delete(parts); return; }
  inSight.add(parts);
  tickRow(parts);
}

function createRow(lock) {
  const { row, cells } = makeRow(['Name', 'Kind', 'Holder', 'Held for', 'Time left', 'Waiting', 'Token']);
  const [name, kind, holder, held, left, waiting, token] = cells;
  const parts = { row, kind: make('span', null, { class: 'tag' }), who: make('span', null, { class: 'cut' }), where: make('small', null, { class: 'cut' }), held: makeTicking(), left: makeTicking(), bar: makeBar(), waiting: makeTicking(), token };
  name.className = 'name';
  name.append(make('a', lock.name, { href: '#/lock/' + encodeURIComponent(lock.name) }));
  kind.append(parts.kind);
  holder.append(parts.who, parts.where);
  held.append(parts.held);
  left.append(parts.left, parts.bar);
  waiting.append(parts.waiting);
  token.className = 'token';
  row.addEventListener('contentvisibilityautostatechange', (event) => look(parts, !event.skipped));
  if (!('oncontentvisibilityautostatechange' in row)) inSight.add(parts);
  return parts;
}

function updateRow(parts, lock) {
  const first = lock.holders[0], more = lock.holders.length - 1;
  parts.lock = lock;
  setText(parts.kind, lock.kind);
  setText(parts.who, first ? who(first) + (more > 0 ? ' and ' + more + ' more' : '') : 'nobody');
  setText(parts.where, first ? where(first) : '');
  setText(parts.token, first?.token || '–');
  parts.bar.hidden = !first;
}

function tickRow(parts) {
  const { lock } = parts, first = lock.holders[0], low = !!first && partOf(first) < LOW_PART;
  setText(parts.held, first && !first.foreign ? duration(sinceOf(first)) : '–');
  setText(parts.left, !first ? '–' : first.leftMs < 0 ? 'no end' : duration(leftOf(first)) + (low ? ', ending' : ''));
  setText(parts.waiting, lock.waiters.length ? lock.waiters.length + ', oldest ' + duration(longestWait(lock)) : 'nobody');
  if (first) drain(parts.bar, partOf(first));
  if (parts.low !== low) parts.row.classList.toggle('low', parts.low = low);
  const nobody = !lock.waiters.length;
  if (parts.nobody !== nobody) parts.waiting.classList.toggle('quiet', parts.nobody = nobody);
}

// Trouble first, then what is waited for, then by name. Nothing in it changes merely because time goes by, or rows would
// run away under the hand.
function rank(lock) {
  const ends = Math.min(...lock.holders.filter((row) => partOf(row) < LOW_PART).map((row) => state.heard + row.leftMs));
  const waits = longestWait(lock);
  const order = ends < Infinity ? 0 : waits > LONG_WAIT_MS ? 1 : waits > 0 ? 2 : 3;
  return { lock, order, within: order === 0 ? ends : -lock.waiters.length };
}
const byRank = (a, b) => a.order - b.order || a.within - b.within || (a.lock.name < b.lock.name ? -1 : 1);

// ---- Trouble ----

function pastTroubles() {
  const ended = { expired: (who) => `the lease of ${who} ran out before it was given back`, broken: (who, why) => `taken away from ${who}: ${why}` };
  return state.changes.slice(-200).filter((change) => change.event in ended && Date.now() - change.at < TOLD_MS).reverse().map((change) => ({
    bad: true, word: change.event === 'expired' ? 'lost' : 'broken', name: change.name,
    text: ended[change.event](change.label || 'its holder', change.text), at: clock(change.at),
  }));
}
function presentTroubles(all) {
  const found = [];
  for (const lock of all) {
    if (lock.holders.some((row) => partOf(row) < LOW_PART))
      found.push({ word: 'ending', name: lock.name, text: 'little time is left, and nobody has renewed it' });
    if (longestWait(lock) > LONG_WAIT_MS)
      found.push({ word: 'waiting', name: lock.name, text: 'somebody has waited for ' + duration(longestWait(lock)) });
  }
  return found;
}
function makeTrouble({ bad, word, name, text, at }) {
  const item = make('li', null, bad ? { class: 'bad' } : {}), words = make('span');
  words.append(make('a', name, { href: '#/lock/' + encodeURIComponent(name) }), ': ' + text);
  item.append(make('b', word), words, make('time', at || ''));
  return item;
}
function showTrouble(all) {
  const troubles = [...pastTroubles(), ...presentTroubles(all)].slice(0, TROUBLES_MAX);
  const key = JSON.stringify(troubles), list = $('trouble-list');
  if (list.key === key) return;
  list.key = key;
  $('trouble').hidden = troubles.length === 0;
  list.replaceChildren(...troubles.map(makeTrouble));
}

// ---- As a whole ----

const ROWS = { key: (lock) => lock.name, create: createRow, update: updateRow, remove: (parts) => look(parts, false) };

export function showNow() {
  const wanted = $('filter').value, all = locks();
  const shown = all.filter((lock) => lock.name.includes(wanted)).map(rank).sort(byRank).map((each) => each.lock);
  keepRows($('locks'), shown, ROWS);
  $('locks').hidden = shown.length === 0;
  $('nothing').hidden = shown.length > 0;
  setText($('nothing'), all.length ? 'No name contains that.' : 'Nothing is held, and nobody waits.');
  setText($('n-held'), String(all.reduce((sum, lock) => sum + lock.holders.length, 0)));
  setText($('n-waiting'), String(all.reduce((sum, lock) => sum + lock.waiters.length, 0)));
  setText($('n-trip'), state.tripMs < 0 ? '–' : state.tripMs < 1 ? 'under 1 ms' : state.tripMs + ' ms');
  showTrouble(all);
}

// What changes with time alone.
export function tickNow(all = locks()) {
  inSight.forEach(tickRow);
  const oldest = all.reduce((most, lock) => Math.max(most, longestWait(lock)), 0);
  setText($('n-oldest'), oldest ? duration(oldest) : '–');
  showTrouble(all);
}
