// patterns.js - the view Patterns: when names were waited for, which names most, and how many
// leases were lost.
import { $, drawColumns, keepRows, make, makeRow, setText } from './elements.js';
import { request } from './stream.js';
import { duration } from './words.js';

const HEAT_ROWS = 25, TOP_ROWS = 10;
const DAY_MS = 86400000;

function nameCell(cell, name) {
  cell.className = 'name';
  cell.append(make('a', name, { href: '#/lock/' + encodeURIComponent(name) }));
}

const HEAT = {
  key: (lock) => lock.name,
  create(lock) {
    const { row, cells: [name, minutes, most] } = makeRow(['Name', '', 'Most in a minute']);
    const squares = lock.minutes.map(() => make('i'));
    nameCell(name, lock.name);
    minutes.className = 'heat';
    minutes.append(...squares);
    return { row, squares, most };
  },
  update(parts, lock) {
    const most = Math.max(1, ...lock.minutes);
    lock.minutes.forEach((ms, i) => { parts.squares[i].style.setProperty('--heat', ms ? Math.round(20 + 80 * ms / most) + '%' : '0%'); });
    setText(parts.most, duration(Math.max(...lock.minutes)));
  },
};

const TOP = {
  key: (lock) => lock.name,
  create(lock) {
    const { row, cells: [name, share, waited] } = makeRow(['Name', '', 'Waited in total']);
    const bar = make('i');
    nameCell(name, lock.name);
    share.className = 'lane';
    share.append(bar);
    return { row, bar, waited };
  },
  update(parts, lock) {
    parts.bar.style.width = Math.max(1, lock.share * 100) + '%';
    setText(parts.waited, duration(lock.waitedMs));
  },
};

const dayOf = (number) => new Date(number * DAY_MS).toLocaleDateString([], { day: 'numeric', month: 'short', timeZone: 'UTC' });

export async function showPatterns() {
  const answer = await request('GET', '/v1/patterns').catch(() => null);
  if (!answer?.ok) return;
  const { locks, lossesPerDay } = await answer.json();
  locks.sort((a, b) => b.waitedMs - a.waitedMs);
  for (const lock of locks) lock.share = lock.waitedMs / Math.max(1, locks[0].waitedMs);
  keepRows($('heat'), locks.slice(0, HEAT_ROWS), HEAT);
  keepRows($('top'), locks.slice(0, TOP_ROWS), TOP);
  drawColumns($('losses'), lossesPerDay.map(({ day, lost }) => ({ label: dayOf(day), value: lost })));
}
