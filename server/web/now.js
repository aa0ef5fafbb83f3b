// now.js - the view Now: troubles, chains of waiters, and a row for every lock, the most urgent one
// first.
import { showFigures } from './board.js';
import { openBreaking } from './breaking.js';
import { chainStarts, circleWords, drawChains, isDeadlocked } from './chains.js';
import { $, drain, keepRows, make, makeBar, makeRow, makeTicking, setText } from './elements.js';
import { anyChosen, chosenOrder, fits, offerHosts } from './filters.js';
import { leftOf, locks, longestWait, partOf, sinceOf, state } from './stream.js';
import { clock, duration, labelled, use, where, who } from './words.js';

const LOW_PART = 0.2;
const NAME_END = 12; // number of letters at the end of a long name that are always shown
const LONG_WAIT_MS = 30000;
const TOLD_MS = 60000; // time for which a loss stays in the list
const SAME_MAX = 3, CHAINS_MAX = 10; // most troubles with the same word, and most chains; a number says how many more there are

// ---- The table ----

const inSight = new Set(); // rows on the screen: only these are updated with time

function look(parts, seen) {
  if (!seen) { inSight.delete(parts); return; }
  inSight.add(parts);
  tickRow(parts);
}

// Long names differ mostly at their end, so letters in the middle are left out.
function makeName(name) {
  const letters = [...name], isLong = letters.length > NAME_END * 2;
  const link = make('a', isLong ? null : name, { href: '#/lock/' + encodeURIComponent(name), title: name });
  if (isLong) link.append(make('span', letters.slice(0, -NAME_END).join('')), make('span', letters.slice(-NAME_END).join('')));
  return link;
}

// Makes the button of a row. A single holder is the victim. Of several the user must choose one, so
// the button leads to the view of the lock, where each holder has a button of its own.
function makeRowBreak(parts) {
  const button = make('button', null, { type: 'button', class: 'small' });
  button.addEventListener('click', () => {
    const { name, holders } = parts.lock;
    if (holders.length === 1) openBreaking(holders[0]);
    else location.hash = '#/lock/' + encodeURIComponent(name);
  });
  return button;
}

// Only a row on the screen gets a button: 300 buttons took a fifth of the longest task. Another
// program's lock has no token by which a hold could be named.
function updateBreak(parts) {
  const { name, holders } = parts.lock, [first] = holders, key = first?.token ? first.token + ' ' + holders.length : '';
  if (parts.breaks === key) return;
  parts.breaks = key;
  if (!parts.button) parts.action.append(parts.button = makeRowBreak(parts));
  parts.button.hidden = !key;
  if (!key) return;
  const several = holders.length > 1;
  setText(parts.button, several ? 'Break one…' : 'Break…');
  parts.button.setAttribute('aria-label', several ? `Choose which of the ${holders.length} holders of ${name} to break` : `Break the hold of ${who(first)} on ${name}`);
}

function createRow(lock) {
  const { row, cells } = makeRow(['Name', 'Kind', 'In use', 'Holder', 'Held since', 'Held for', 'Time left', 'Waiting', 'Token', '']);
  const [name, kind, used, holder, since, held, left, waiting, token, action] = cells;
  const parts = { row, kind, used, since, who: make('span'), where: make('small'), held: makeTicking(), left: makeTicking(), bar: makeBar(), waiting: makeTicking(), token };
  name.className = 'name';
  name.append(makeName(lock.name));
  holder.className = 'cut';
  holder.append(parts.who, parts.where);
  held.append(parts.held);
  left.append(parts.left, parts.bar);
  waiting.append(parts.waiting);
  token.className = 'token';
  action.className = 'action';
  parts.action = action;
  row.addEventListener('contentvisibilityautostatechange', (event) => look(parts, !event.skipped));
  if (!('oncontentvisibilityautostatechange' in row)) inSight.add(parts);
  return parts;
}

function updateRow(parts, lock) {
  const first = lock.holders[0], more = lock.holders.length - 1;
  parts.lock = lock;
  setText(parts.kind, lock.kind);
  setText(parts.used, use(lock));
  setText(parts.who, first ? who(first) + (more > 0 ? ' and ' + more + ' more' : '') : 'nobody');
  setText(parts.where, first ? where(first) : '');
  setText(parts.since, first && !first.foreign ? clock(state.at - first.sinceMs) : '–');
  setText(parts.token, first?.token || '–');
  parts.bar.hidden = !first;
  if (parts.stuck !== lock.isDeadlocked) parts.row.classList.toggle('stuck', parts.stuck = lock.isDeadlocked);
}

function tickRow(parts) {
  const { lock } = parts, first = lock.holders[0], low = !!first && partOf(first) < LOW_PART;
  setText(parts.held, first && !first.foreign ? duration(sinceOf(first)) : '–');
  setText(parts.left, !first ? '–' : first.leftMs < 0 ? 'no end' : duration(leftOf(first)) + (low ? ', ending' : ''));
  setText(parts.waiting, lock.waiters.length ? lock.waiters.length + ', oldest ' + duration(longestWait(lock)) : 'nobody');
  if (first) drain(parts.bar, partOf(first));
  updateBreak(parts);
  if (parts.low !== low) parts.row.classList.toggle('low', parts.low = low);
  const nobody = !lock.waiters.length;
  if (parts.nobody !== nobody) parts.waiting.classList.toggle('quiet', parts.nobody = nobody);
}

// Locks with trouble first, then locks with waiters, then by name. The order does not depend on the
// time: a row must not move away while the user points at it.
function rank(lock) {
  const ends = Math.min(...lock.holders.filter((row) => partOf(row) < LOW_PART).map((row) => state.heard + row.leftMs));
  const waits = longestWait(lock);
  const order = lock.isDeadlocked ? 0 : ends < Infinity ? 1 : waits > LONG_WAIT_MS ? 2 : waits > 0 ? 3 : 4;
  return { lock, order, within: order === 1 ? ends : -lock.waiters.length };
}
const byRank = (a, b) => a.order - b.order || a.within - b.within || (a.lock.name < b.lock.name ? -1 : 1);

// ---- Trouble ----

function pastTroubles() {
  const ended = { expired: (who) => `the lease of ${who} ran out before it was released`, broken: (who, why) => `broken while ${who} held it: ${why}` };
  return state.changes.slice(-200).filter((change) => change.event in ended && Date.now() - change.at < TOLD_MS).reverse().map((change) => ({
    bad: true, word: change.event === 'expired' ? 'lost' : 'broken', name: change.name,
    text: ended[change.event](labelled(change.label) || 'its holder', change.text), at: clock(change.at),
  }));
}
function presentTroubles(all) {
  const found = state.deadlocks.map((circle) => ({ bad: true, word: 'deadlock', name: circle[0], text: circleWords(circle) }));
  // Sorted, so that the longest wait is among those that are shown.
  const longest = [...all].sort((a, b) => longestWait(b) - longestWait(a));
  for (const lock of longest) {
    if (lock.holders.some((row) => partOf(row) < LOW_PART))
      found.push({ word: 'ending', name: lock.name, text: 'little time is left, and nobody has renewed it' });
    if (longestWait(lock) > LONG_WAIT_MS && !isDeadlocked(lock.name))
      found.push({ word: 'waiting', name: lock.name, text: 'somebody has waited for ' + duration(longestWait(lock)) });
  }
  return found;
}
function makeTrouble({ bad, word, name, text, at, more }) {
  const item = make('li', null, bad ? { class: 'bad' } : {}), words = make('span');
  words.append(make('a', name, { href: '#/lock/' + encodeURIComponent(name) }), ': ' + text);
  if (more) words.append(make('em', `and ${more} more`));
  item.append(make('b', word), words, make('time', at || ''));
  return item;
}
// Shows a few troubles of each word: a hundred waiters must not push the locks off the screen.
function shorten(troubles) {
  const count = {}, kept = [];
  for (const trouble of troubles) {
    const number = count[trouble.word] = (count[trouble.word] || 0) + 1;
    if (number <= SAME_MAX) kept.push(trouble);
  }
  for (const word in count) {
    const last = kept.findLast((trouble) => trouble.word === word), more = count[word] - SAME_MAX;
    if (more > 0) last.more = more;
  }
  return kept;
}
function showTrouble(all) {
  const troubles = shorten([...pastTroubles(), ...presentTroubles(all)]);
  const key = JSON.stringify(troubles), list = $('trouble-list');
  if (list.key === key) return;
  list.key = key;
  $('trouble').hidden = troubles.length === 0;
  list.replaceChildren(...troubles.map(makeTrouble));
}

// ---- As a whole ----

const ROWS = { key: (lock) => lock.name, create: createRow, update: updateRow, remove: (parts) => look(parts, false) };

// All locks that the filters accept.
function readLocks() {
  const all = locks();
  for (const lock of all) {
    lock.isEnding = lock.holders.some((row) => partOf(row) < LOW_PART);
    lock.isDeadlocked = isDeadlocked(lock.name);
  }
  return all;
}

function showChains(all) {
  const starts = chainStarts(all);
  if ($('chains').hidden !== !starts.length) $('chains').hidden = !starts.length;
  drawChains($('chain-list'), starts.slice(0, CHAINS_MAX), new Map(all.map((lock) => [lock.name, lock])));
}

function inOrder(shown) {
  const order = chosenOrder();
  return order ? shown.sort(order) : shown.map(rank).sort(byRank).map((each) => each.lock);
}

export function showNow() {
  const all = readLocks(), shown = inOrder(all.filter(fits));
  offerHosts(state.rows);
  keepRows($('locks'), shown, ROWS);
  $('locks').hidden = shown.length === 0;
  $('nothing').hidden = shown.length > 0;
  const isKnown = state.up && state.heard > 0;
  $('first').hidden = all.length > 0 || !isKnown;
  setText($('nothing-words'), all.length ? 'No lock fits these filters.' : isKnown ? 'Nothing is held, and nobody waits.' : 'What is held is not known: the engine does not answer.');
  setText($('count'), anyChosen() ? `${shown.length} of ${all.length}` : String(all.length));
  setText($('n-trip'), state.tripMs < 0 ? '' : state.tripMs < 1 ? 'in less than 1 ms' : `in ${state.tripMs} ms`);
  showFigures(all);
  showChains(all);
  showTrouble(all);
}

// Updates what changes with time alone.
export function tickNow(all = readLocks()) {
  inSight.forEach(tickRow);
  showFigures(all);
  showChains(all);
  showTrouble(all);
}
