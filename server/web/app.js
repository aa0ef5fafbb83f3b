// app.js - chooses the view, and draws it: what has changed once a frame, figures that change with
// time alone four times a second.
import { showAbout } from './board.js';
import { prepareBreaking, tickBreaking } from './breaking.js';
import { $, setText } from './elements.js';
import { prepareFilters, readFilters } from './filters.js';
import { showLock, tickLock } from './lock.js';
import { showNow, tickNow } from './now.js';
import { showPatterns } from './patterns.js';
import { listen, state } from './stream.js';
import { clock } from './words.js';

const STALE_MS = 3000; // older data is shown as stale; the service polls more often than this
const TICK_MS = 250, PATTERNS_MS = 10000;
const VIEWS = ['now', 'lock', 'patterns'];

// Returns the text as it is if its escapes are broken: an address may be cut off or typed by hand.
function decode(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

function current() {
  const at = location.hash.replace(/^#\/?/, '').replace(/\?.*/, '');
  if (at.startsWith('lock/')) return { view: 'lock', name: decode(at.slice(5)) };
  return { view: at === 'patterns' ? 'patterns' : 'now' };
}

// ---- Drawing ----

function showBand() {
  const stale = !state.connected || performance.now() - state.heard > STALE_MS;
  const trouble = state.heard > 0 && (stale || !state.up);
  const words = stale ? (state.at ? 'stale since ' + clock(state.at) : 'not connected') :
    state.up ? 'live' : 'engine down' + (state.at ? ' since ' + clock(state.at) : '');
  if (document.body.classList.contains('stale') !== trouble) document.body.classList.toggle('stale', trouble);
  setText($('live'), state.heard ? words : 'connecting');
  setText($('engine'), state.words);
  showAbout();
}

function draw() {
  const at = current();
  showBand();
  if (at.view === 'now') showNow();
  if (at.view === 'lock') showLock(at.name);
}

function tick() {
  const at = current();
  showBand();
  tickBreaking();
  if (!state.connected || !state.up) return;
  if (at.view === 'now') tickNow();
  if (at.view === 'lock') tickLock(at.name);
}

let drawing = 0;
function drawSoon() {
  drawing ||= requestAnimationFrame(() => { drawing = 0; draw(); });
}

// ---- Changing the view ----

function enter() {
  const at = current();
  for (const view of VIEWS) {
    $('view-' + view).hidden = at.view !== view;
    const link = $('nav-' + view);
    if (link && at.view === view) link.setAttribute('aria-current', 'page');
    else link?.removeAttribute('aria-current');
  }
  const title = state.about?.title || 'Holdfast';
  document.title = at.view === 'lock' ? at.name + ' · ' + title : title;
  if (at.view === 'now') { readFilters(); $('locks').hurries = true; }
  draw();
  if (at.view === 'patterns') showPatterns();
}

addEventListener('hashchange', () => {
  enter();
  if (document.activeElement !== $('f-name')) $('main').focus({ preventScroll: true });
  scrollTo(0, 0);
});
addEventListener('keydown', (event) => {
  if (event.key !== '/' || /input|select/i.test(event.target.tagName)) return;
  event.preventDefault();
  if (current().view !== 'now') location.hash = '#/';
  enter();
  $('f-name').focus();
});
prepareFilters(() => { $('locks').hurries = true; drawSoon(); });
setText($('first-command'), `curl -X POST ${location.origin}/v1/locks/demo/leases --json '{"ttlMs":30000,"label":"me"}'`);
prepareBreaking();
setInterval(tick, TICK_MS);
setInterval(() => { if (current().view === 'patterns') showPatterns(); }, PATTERNS_MS);
enter();
listen(drawSoon);
