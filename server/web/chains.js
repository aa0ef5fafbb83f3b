// chains.js - draws who waits for whom: a lock, its holder, the lock that this holder waits for,
// and so on.
import { make } from './elements.js';
import { sinceOf, state } from './stream.js';
import { duration, where, who } from './words.js';

const STEPS_MAX = 12;

export const isDeadlocked = (name) => state.deadlocks.some((circle) => circle.includes(name));
export const circleWords = (circle) =>
  circle.map((name, i) => `the holder of ${name} waits for ${circle[(i + 1) % circle.length]}`).join(', ') + '. None of them can go on.';

// Returns the steps of the chain that begins at one lock; the last step says how the chain ends.
export function chainOf(name, byName) {
  const steps = [], seen = new Set();
  while (name && steps.length < STEPS_MAX) {
    const holder = byName.get(name)?.holders.find((row) => row.waitsFor) || byName.get(name)?.holders[0];
    const again = seen.has(name);
    steps.push({ name, holder: again ? null : holder, again });
    if (again || !holder) break;
    seen.add(name);
    name = holder.waitsFor?.[0];
  }
  return steps;
}

// Returns the locks at which a chain begins: their holder waits, and no other holder waits for
// them. A circle has no such lock.
export function chainStarts(all) {
  const waitedFor = new Set(state.rows.flatMap((row) => row.waitsFor || []));
  const links = all.filter((lock) => lock.holders.some((row) => row.waitsFor));
  return [...links.filter((lock) => !waitedFor.has(lock.name)).map((lock) => lock.name), ...state.deadlocks.map((circle) => circle[0])];
}

function makeStep({ name, holder, again }, isLast) {
  const item = make('li');
  item.append(make('a', name, { href: '#/lock/' + encodeURIComponent(name) }));
  if (again) item.append(' again: a circle, so none of them can go on.');
  else if (!holder) item.append(' is free.');
  else {
    item.append(' is held by ', make('b', who(holder)), `${where(holder) && ` (${where(holder)})`} for ${duration(sinceOf(holder))}`);
    item.append(isLast ? ', who waits for nothing.' : ', who waits for');
  }
  return item;
}

export function makeChain(name, byName) {
  const steps = chainOf(name, byName), list = make('ol', null, { class: 'chain' });
  if (isDeadlocked(name) || steps.some((step) => step.again)) list.classList.add('bad');
  list.append(...steps.map((step, i) => makeStep(step, i + 1 === steps.length)));
  return list;
}

// Draws chains into an element, unless they are the same as before. Times in chains are updated
// once a second.
export function drawChains(place, names, byName) {
  const key = JSON.stringify(names.map((name) => chainOf(name, byName).map(({ name: each, holder }) => [each, holder?.token]))) + Math.floor(Date.now() / 1000);
  if (place.key === key) return;
  place.key = key;
  place.replaceChildren(...names.map((name) => makeChain(name, byName)));
}
