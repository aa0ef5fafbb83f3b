// lock.js - the view of one lock: who holds it, who waits, and what has happened to it.
import { $, drain, drawColumns, keepRows, make, makeBar, makeRow, makeTicking, setText } from './elements.js';
import { leftOf, locks, partOf, sinceOf, state } from './stream.js';
import { clock, duration, units as unitsOf, where, who } from './words.js';

const SEEN_LATE_MS = 1500;
const HOLDS_MAX = 12;
const EVENTS_MAX = 100;
const MIN_BAR = 0.6; // of the width, in hundredths: a short hold is still to be seen

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
    const { row, cells: [holder, units, held, left, token] } = makeRow(['Holder', 'Units', 'Held for', 'Time left', 'Token']);
    const parts = { row, units, token, who: person(holder), held: makeTicking(), left: makeTicking(), bar: makeBar() };
    held.append(parts.held);
    left.append(parts.left, parts.bar);
    token.className = 'token';
    return parts;
  },
  update(parts, row) {
    setPerson(parts.who, row);
    setText(parts.units, unitsOf(row));
    setText(parts.held, row.foreign ? '–' : duration(sinceOf(row)));
    setText(parts.left, row.leftMs < 0 ? 'no end' : duration(leftOf(row)));
    setText(parts.token, row.token || '–');
    drain(parts.bar, partOf(row));
  },
};

const QUEUE = {
  key: (row) => row.ticket + ' ' + row.pid + ' ' + row.place,
  create() {
    const { row, cells: [place, waiter, units, waits] } = makeRow(['Place', 'Who', 'Units', 'Waiting for']);
    const parts = { row, place, units, who: person(waiter), waits: makeTicking() };
    waits.append(parts.waits);
    return parts;
  },
  update(parts, row) {
    setText(parts.place, String(row.place));
    setPerson(parts.who, row);
    setText(parts.units, unitsOf(row));
    setText(parts.waits, duration(sinceOf(row)));
  },
};

function sentence({ holders: [first], waiters }) {
  if (!state.up) return 'Not known: the engine does not answer.';
  if (!first) return 'Free.';
  const queue = waiters.length === 0 ? 'nobody waits' : waiters.length === 1 ? '1 waits' : waiters.length + ' wait';
  return `Held by ${who(first)}${first.foreign ? '' : ' for ' + duration(sinceOf(first))}, ${queue}.`;
}

// ---- The past ----

// How a hold ended, as it is said behind its length.
const ENDS = { released: '', expired: ', ran out', broken: ', broken', open: ', held now' };

// An end is seen at the next look, a beginning is known: two holds must not seem to overlap because of that.
function trim(holds) {
  holds.sort((a, b) => a.from - b.from);
  for (const hold of holds) {
    const next = holds.find((other) => other.from > hold.from && other.from < hold.to && other.from > hold.to - SEEN_LATE_MS);
    if (next && hold.how !== 'open') hold.to = next.from;
  }
  return holds;
}

// A hold is a grant and the end with the same token.
function readPast(changes) {
  const open = new Map(), holds = [], queued = [], waits = [];
  for (const { event, token, at, ms, label } of changes) {
    if (event === 'granted') open.set(token, { token, from: at - ms, label });
    if (event in ENDS) {
      holds.push({ token, from: open.get(token)?.from ?? at - ms, to: at, how: event, label });
      open.delete(token);
    }
    if (event === 'queued') queued.push(at);
    if (event === 'granted' && queued.length) waits.push(at - queued.shift());
  }
  for (const hold of open.values()) holds.push({ ...hold, to: Date.now(), how: 'open' });
  return { holds: trim(holds), waits };
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
  update() {}, // what has happened does not change
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
  }
  tickLock(name);
}

// What changes with time alone, and who is there.
export function tickLock(name) {
  const lock = lockNamed(name);
  setText($('lock-state'), sentence(lock));
  $('break').hidden = !lock.holders[0]?.token;
  keepRows($('holders'), lock.holders, HOLDERS);
  keepRows($('queue'), lock.waiters, QUEUE);
}
