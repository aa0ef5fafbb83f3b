// board.js - the figures above the locks: the present numbers, the last hour as sparklines, the
// durations of waits and holds, and the name of this service and engine.
import { $, make, setText } from './elements.js';
import { longestWait, state } from './stream.js';
import { duration, fine } from './words.js';

const WIDTH = 120, HEIGHT = 28;
const SVG = 'http://www.w3.org/2000/svg';

// ---- Sparklines ----

// One bar for each minute. A minute without data has no bar; a minute with the value 0 has a flat
// one.
function makeBarOf(value, i, count, most) {
  const bar = document.createElementNS(SVG, 'rect'), height = Math.max(1, value / most * HEIGHT);
  const box = { x: i / count * WIDTH, y: HEIGHT - height, width: WIDTH / count * 0.75, height };
  for (const key in box) bar.setAttribute(key, box[key].toFixed(2));
  return bar;
}

function drawSpark(place, values, word) {
  const key = values.join();
  if (place.key === key) return;
  place.key = key;
  const most = Math.max(1, ...values.map(Number)), svg = document.createElementNS(SVG, 'svg');
  svg.setAttribute('viewBox', `0 0 ${WIDTH} ${HEIGHT}`);
  svg.setAttribute('preserveAspectRatio', 'none');
  svg.setAttribute('role', 'img');
  svg.setAttribute('aria-label', `${word} in the last hour, at most ${most}`);
  values.forEach((value, i) => { if (value != null) svg.append(makeBarOf(value, i, values.length, most)); });
  place.replaceChildren(svg, make('span', 'most ' + most));
}

// ---- As a whole ----

const both = ({ count, p50Ms, p99Ms }) => (count ? `${fine(p50Ms)} · ${fine(p99Ms)}` : '–');

export function showAbout() {
  const { about } = state;
  if (!about) return;
  const title = about.title || 'Holdfast', up = about.uptimeMs + (performance.now() - about.heard);
  if (document.body.dataset.colour !== about.colour) document.body.dataset.colour = about.colour;
  setText($('title'), title);
  setText($('where'), [about.server || about.engine, `${about.host}, pid ${about.pid}`, 'up ' + duration(up), 'version ' + about.version].filter(Boolean).join(' · '));
  const { hour } = about;
  drawSpark($('s-held'), hour.held, 'holds');
  drawSpark($('s-waiting'), hour.waiting, 'waiters');
  drawSpark($('s-grants'), hour.grants, 'grants a minute');
  setText($('n-grants'), String(hour.grants.at(-1) ?? 0));
  setText($('n-waits'), both(hour.waits));
  setText($('n-holds'), both(hour.holds));
}

export function showFigures(all) {
  setText($('n-held'), String(all.reduce((sum, lock) => sum + lock.holders.length, 0)));
  setText($('n-waiting'), String(all.reduce((sum, lock) => sum + lock.waiters.length, 0)));
  const oldest = all.reduce((most, lock) => Math.max(most, longestWait(lock)), 0);
  setText($('n-oldest'), oldest ? duration(oldest) : '–');
}
