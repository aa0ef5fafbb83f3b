// lock.js - the view of one lock: its holders, its queue, and its past.
import { makeBreak } from './breaking.js';
import { drawChains } from './chains.js';
import { $, drain, drawColumns, keepRows, make, makeBar, makeRow, makeTicking, setText } from './elements.js';
import { leftOf, locks, partOf, sinceOf, state } from './stream.js';
import { clock, duration, fine, units as unitsOf, use, where, who } from './words.js';

const SEEN_LATE_MS = 1500;
const HOLDS_MAX = 12;
const EVENTS_MAX = 100;
const MIN_BAR = 0.6; // in percent of the width: a short hold must still be visible

export const lockNamed = (name) => locks().find((each) => each.name === name) || { name, holders: [], waiters: [] };

// ---- Holders and queue ----

function person(cell) {
  const parts = { name: make('span', null, { class: 'cut' }), place: make('small', null, { class: 'cut' }) };
  cell.append(parts.name, parts.place);
  return parts;
}
function setPerson(parts, row) {
  setText(parts.name, who(row));
  setText(parts.place, where(row));
}

const HOLDERS = {
  key: (row) => row.token + ' ' + row.ticket + ' ' + row.pid,
  create() {
    const { row, cells: [holder, units, since, held, left, token, action] } = makeRow(['Holder', 'Units', 'Held since', 'Held for', 'Time left', 'Token', '']);
    const parts = { row, units, since, token, who: person(holder), held: makeTicking(), left: makeTicking(), bar: makeBar() };
    parts.button = makeBreak(parts);
    action.className = 'action';
    action.append(parts.button);
    held.append(parts.held);
    left.append(parts.left, parts.bar);
    token.className = 'token';
    return parts;
  },
  update(parts, row) {
    parts.holder = row;
    if (parts.button.hidden !== !row.token) parts.button.hidden = !row.token;
    setPerson(parts.who, row);
    setText(parts.units, unitsOf(row));
    setText(parts.since, row.foreign ? '–' : clock(state.at - row.sinceMs));
    setText(parts.held, row.foreign ? '–' : duration(sinceOf(row)));
    setText(parts.left, row.leftMs < 0 ? 'no end' : duration(leftOf(row)));
    setText(parts.token, row.token || '–');
    drain(parts.bar, partOf(row));
  },
};

const QUEUE = {
  key: (row) => row.ticket + ' ' + row.pid + ' ' + row.place,
  create() {
    const { row, cells: [place, waiter, units, since, waits] } = makeRow(['Place', 'Who', 'Units', 'Waiting since', 'Waiting for']);
    const parts = { row, place, units, since, who: person(waiter), waits: makeTicking() };
    waits.append(parts.waits);
    return parts;
  },
  update(parts, row) {
    setText(parts.place, String(row.place));
    setPerson(parts.who, row);
    setText(parts.units, unitsOf(row));
    setText(parts.since, clock(state.at - row.sinceMs));
    setText(parts.waits, duration(sinceOf(row)));
  },
};

function sentence(lock) {
  const { holders: [first, ...others], waiters } = lock;
  if (!state.up) return 'Not known: the engine does not answer.';
  if (!first) return 'Free.';
  const queue = waiters.length === 0 ? 'nobody waits' : waiters.length === 1 ? '1 waits' : waiters.length + ' wait';
  const held = `Held by ${who(first)}${first.foreign ? '' : ' for ' + duration(sinceOf(first))}`;
  return `${held}${others.length ? ` and ${others.length} more` : ''}, ${queue}. ${lock.kind === 'semaphore' ? use(lock) + '.' : ''}`;
}

// The chain behind this lock, if somebody waits for the lock or its holder waits for another one.
function showWhy(lock) {
  const wanted = lock.holders.length > 0 && (lock.waiters.length > 0 || lock.holders.some((row) => row.waitsFor));
  if ($('why').hidden !== !wanted) $('why').hidden = !wanted;
  drawChains($('why-list'), wanted ? [lock.name] : [], new Map(locks().map((each) => [each.name, each])));
}

// ---- The past ----

// Returns the words for how a hold ended, to be shown behind its length.
const ENDS = { released: '', expired: ', ran out', broken: ', broken', open: ', held now' };

// A sampled end is seen a little late. Two holds must not seem to overlap because of that.
function trim(holds) {
  for (const hold of holds) {
    const next = hold.sampled && holds.find((other) => other.from > hold.from && other.from < hold.to && other.from > hold.to - SEEN_LATE_MS);
    if (next && hold.how !== 'open') hold.to = next.from;
  }
  return holds;
}

// A hold is a grant and the end with the same token. heldMs and waitedMs are exact unless the
// change is sampled.
export function readPast(changes) {
  const open = new Map(), holds = [], waits = [];
  for (const { event, token, at, heldMs, waitedMs, label, sampled } of changes) {
    if (event === 'granted') open.set(token, { token, from: at, label, sampled });
    if (event === 'granted' && waitedMs != null) waits.push(waitedMs);
    if (!(event in ENDS)) continue;
    const from = heldMs != null ? at - heldMs : open.get(token)?.from;
    if (from != null) holds.push({ token, from, to: at, how: event, label, sampled });
    open.delete(token);
  }
  for (const hold of open.values()) holds.push({ ...hold, to: Date.now(), how: 'open' });
  return { holds: trim(holds.sort((a, b) => a.from - b.from)), waits };
}

const GANTT = {
  key: (hold) => hold.token,
  create() {
    const { row, cells: [holder, chart, length] } = makeRow(['Holder', '', 'Held for']);
    const parts = { row, holder: make('span', null, { class: 'cut' }), bar: make('i'), length };
    chart.className = 'lane';
    holder.append(parts.holder);
    chart.append(parts.bar);
    return parts;
  },
  update(parts, hold) {
    const { low, span } = hold.scale, from = (hold.from - low) / span * 100;
    const width = Math.max(MIN_BAR, (hold.to - hold.from) / span * 100);
    setText(parts.holder, hold.label || '–');
    setText(parts.length, duration(hold.to - hold.from) + ENDS[hold.how]);
    parts.bar.className = hold.how === 'expired' || hold.how === 'broken' ? 'bad' : hold.how;
    parts.bar.style.left = Math.min(from, 100 - width) + '%';
    parts.bar.style.width = width + '%';
  },
};

function drawGantt(holds) {
  const low = Math.min(...holds.map((hold) => hold.from)), high = Math.max(...holds.map((hold) => hold.to));
  const scale = { low, span: Math.max(1, high - low) };
  for (const hold of holds) hold.scale = scale;
  keepRows($('gantt'), holds, GANTT);
  setText($('gantt-from'), holds.length ? clock(low) : '');
  setText($('gantt-to'), holds.length ? clock(high) : '');
}

const BOUNDS = [[10, '≤ 10 ms'], [100, '≤ 100 ms'], [1000, '≤ 1 s'], [10000, '≤ 10 s'], [60000, '≤ 1 min'], [Infinity, 'more']];
function spread(values) {
  const counts = BOUNDS.map(([, label]) => ({ label, value: 0 }));
  for (const value of values) counts[BOUNDS.findIndex(([bound]) => value <= bound)].value++;
  return counts;
}

function percentile(values, percent) {
  const sorted = [...values].sort((a, b) => a - b);
  return sorted[Math.max(0, Math.ceil(sorted.length * percent / 100) - 1)];
}
const halves = (values) => (values.length ? `p50 ${fine(Math.round(percentile(values, 50)))}, p99 ${fine(Math.round(percentile(values, 99)))} of ${values.length}` : 'none yet');

const EVENTS = {
  key: (change) => change.at + change.event + change.token + change.label,
  create(change) {
    const { row, cells: [time, what, who, token] } = makeRow(['Time', 'What', 'Who', 'Token']);
    setText(time, clock(change.at));
    what.append(make('b', change.event), change.text ? ': ' + change.text : '');
    setText(who, change.label || '–');
    setText(token, change.token || '–');
    token.className = 'token';
    return { row };
  },
  update() {}, // past holds do not change
};

// ---- As a whole ----

export function showLock(name) {
  const changes = state.changes.filter((change) => change.name === name);
  const { holds, waits } = readPast(changes);
  setText($('h-lock'), name);
  drawGantt(holds.slice(-HOLDS_MAX));
  keepRows($('events'), changes.slice(-EVENTS_MAX).reverse(), EVENTS);
  const key = JSON.stringify([name, spread(holds.map((hold) => hold.to - hold.from)), spread(waits)]);
  if ($('d-hold').key !== key) {
    $('d-hold').key = key;
    drawColumns($('d-hold'), spread(holds.map((hold) => hold.to - hold.from)));
    drawColumns($('d-wait'), spread(waits));
    setText($('p-hold'), halves(holds.filter((hold) => hold.how !== 'open').map((hold) => hold.to - hold.from)));
    setText($('p-wait'), halves(waits));
  }
  tickLock(name);
}

// Updates times, and who holds and waits.
export function tickLock(name) {
  const lock = lockNamed(name);
  setText($('lock-state'), sentence(lock));
  showWhy(lock);
  keepRows($('holders'), lock.holders, HOLDERS);
  keepRows($('queue'), lock.waiters, QUEUE);
}
