// app.js - the page: one event stream feeds it; everything that is shown comes from the last snapshot and the changes.
'use strict';

const $ = (id) => document.getElementById(id);
const PAST_MAX = 1000;
const STALE_MS = 2000;
const SEEN_LATE_MS = 1500;
const state = { rows: [], changes: [], at: 0, up: false, connected: false, heard: 0, broken: 0, token: sessionStorage.getItem('token') || '' };

// ---- Words ----

function duration(ms) {
  if (ms == null || ms < 0) return '–';
  const s = ms / 1000;
  if (s < 10) return s.toFixed(1) + ' s';
  if (s < 60) return Math.floor(s) + ' s';
  if (s < 3600) return Math.floor(s / 60) + ' min ' + Math.floor(s % 60) + ' s';
  return Math.floor(s / 3600) + ' h ' + Math.floor((s % 3600) / 60) + ' min';
}
const who = (row) => row.foreign ? 'another program' : (row.label || 'pid ' + row.pid);
const where = (row) => row.foreign ? '' : row.host + ', pid ' + row.pid;
const clock = (ms) => new Date(ms).toLocaleTimeString();

// ---- Elements: text only, never markup ----

function make(tag, text, attributes) {
  const element = document.createElement(tag);
  if (text != null) element.textContent = text;
  for (const name in attributes || {}) element.setAttribute(name, attributes[name]);
  return element;
}
function shape(tag, attributes, text) {
  const element = document.createElementNS('http://www.w3.org/2000/svg', tag);
  for (const name in attributes) element.setAttribute(name, attributes[name]);
  if (text != null) element.textContent = text;
  return element;
}
function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}
function fill(body, rows) {
  body.replaceChildren(...rows);
}

// How a hold ended, as it is said behind its length.
const ENDS = { released: '', expired: ', ran out', broken: ', broken', open: ', held now' };

// ---- What there is ----

function locks() {
  const all = new Map();
  for (const row of state.rows) {
    if (!all.has(row.name)) all.set(row.name, { name: row.name, kind: row.kind, holders: [], waiters: [] });
    all.get(row.name)[row.role === 'holder' ? 'holders' : 'waiters'].push(row);
  }
  return [...all.values()];
}
const since = () => state.heard ? performance.now() - state.heard : 0;
const leftOf = (row) => row.leftMs < 0 ? -1 : Math.max(0, row.leftMs - since());
const partOf = (row) => row.ttlMs > 0 && row.leftMs >= 0 ? leftOf(row) / row.ttlMs : 1;
const longest = (lock) => Math.max(0, ...lock.waiters.map((row) => row.sinceMs + since()));
const worst = (lock) => Math.min(1, ...lock.holders.map(partOf));
function byTrouble(a, b) {
  const part = (lock) => worst(lock) < 0.6 ? worst(lock) : 1;
  return part(a) - part(b) || b.waiters.length - a.waiters.length || (a.name < b.name ? -1 : 1);
}

// ---- The view Now ----

const cells = new Map(); // name -> the elements of its row, kept so that nothing flickers and focus stays

function newRow(name) {
  const row = make('tr');
  const parts = { row };
  for (const [key, label] of [['name', 'Name'], ['kind', 'Kind'], ['holder', 'Holder'], ['held', 'Held for'], ['left', 'Time left'], ['waiting', 'Waiting'], ['token', 'Token']]) {
    parts[key] = make('td', null, { 'data-label': label });
    row.append(parts[key]);
  }
  parts.name.className = 'name';
  parts.name.append(make('a', name, { href: '#/lock/' + encodeURIComponent(name) }));
  parts.who = make('span');
  parts.where = make('small');
  parts.holder.append(parts.who, parts.where);
  parts.left.className = 'left';
  parts.number = make('span');
  parts.bar = make('progress', null, { max: '1', 'aria-label': 'time left of ' + name });
  parts.left.append(parts.number, parts.bar);
  return parts;
}

function showRow(parts, lock) {
  const first = lock.holders[0];
  const more = lock.holders.length > 1 ? ' and ' + (lock.holders.length - 1) + ' more' : '';
  setText(parts.kind, lock.kind);
  setText(parts.who, first ? who(first) + more : 'nobody');
  setText(parts.where, first ? where(first) : '');
  setText(parts.held, first && !first.foreign ? duration(first.sinceMs + since()) : '–');
  setText(parts.number, first ? (first.leftMs < 0 ? 'no end' : duration(leftOf(first))) : '–');
  parts.bar.hidden = !first;
  if (first) parts.bar.value = partOf(first);
  parts.row.classList.toggle('low', !!first && partOf(first) < 0.2);
  setText(parts.waiting, lock.waiters.length ? lock.waiters.length + ', oldest ' + duration(longest(lock)) : 'nobody');
  setText(parts.token, first && first.token ? first.token : '–');
}

function showNow() {
  const wanted = $('filter').value;
  const all = locks();
  const shown = all.filter((lock) => lock.name.includes(wanted)).sort(byTrouble);
  const names = new Set(shown.map((lock) => lock.name));
  for (const [name, parts] of cells) if (!names.has(name)) { parts.row.remove(); cells.delete(name); }
  const body = $('locks').tBodies[0];
  let next = body.firstElementChild;
  shown.forEach((lock) => {
    if (!cells.has(lock.name)) cells.set(lock.name, newRow(lock.name));
    const parts = cells.get(lock.name);
    showRow(parts, lock);
    if (next === parts.row) next = next.nextElementSibling;
    else body.insertBefore(parts.row, next);
  });
  $('nothing').hidden = shown.length > 0;
  setText($('nothing'), all.length ? 'No name contains that.' : 'Nothing is held, and nobody waits.');
  const waiting = all.reduce((sum, lock) => sum + lock.waiters.length, 0);
  setText($('n-held'), String(all.reduce((sum, lock) => sum + lock.holders.length, 0)));
  setText($('n-waiting'), String(waiting));
  setText($('n-oldest'), waiting ? duration(Math.max(...all.map(longest))) : '–');
  showTrouble(all);
}

function showTrouble(all) {
  const items = [];
  const add = (text, bad) => items.push({ text, bad });
  for (const change of state.changes.slice(-200))
    if (change.event === 'expired' && Date.now() - change.at < 60000)
      add(change.name + ': the lease of ' + (change.label || 'its holder') + ' ran out before it was given back (' + clock(change.at) + ')', true);
    else if (change.event === 'broken' && Date.now() - change.at < 60000)
      add(change.name + ': taken away from ' + (change.label || 'its holder') + ': ' + change.text + ' (' + clock(change.at) + ')', true);
  for (const lock of all) {
    if (lock.holders.some((row) => partOf(row) < 0.2 && row.leftMs >= 0))
      add(lock.name + ': little time is left, and nobody has renewed it', false);
    if (longest(lock) > 30000) add(lock.name + ': somebody has waited for ' + duration(longest(lock)), false);
  }
  $('trouble').hidden = items.length === 0;
  const key = JSON.stringify(items.map((item) => item.text));
  if ($('trouble-list').dataset.key === key) return;
  $('trouble-list').dataset.key = key;
  fill($('trouble-list'), items.slice(0, 20).map((item) => make('li', item.text, item.bad ? { class: 'bad' } : {})));
}

// ---- The view of one lock ----

const table = (id) => $(id).tBodies[0];
const line = (...texts) => { const row = make('tr'); for (const text of texts) row.append(make('td', text)); return row; };

function showLock(name) {
  const lock = locks().find((each) => each.name === name) || { name, holders: [], waiters: [] };
  const first = lock.holders[0];
  setText($('h-lock'), name);
  setText($('lock-state'), !state.up ? 'Not known: the engine does not answer.' :
    first ? 'Held by ' + who(first) + ' for ' + duration(first.sinceMs + since()) + ', ' + (lock.waiters.length || 'nobody') + (lock.waiters.length === 1 ? ' waits.' : lock.waiters.length ? ' wait.' : ' waits.') : 'Free.');
  $('break').hidden = !(first && first.token);
  fill(table('holders'), lock.holders.map((row) => line(who(row) + (where(row) ? ' (' + where(row) + ')' : ''), row.units + ' of ' + row.capacity, duration(row.sinceMs + since()), row.leftMs < 0 ? 'no end' : duration(leftOf(row)), row.token || '–')));
  fill(table('queue'), lock.waiters.map((row) => line(String(row.place), who(row) + ' (' + where(row) + ')', String(row.units), duration(row.sinceMs + since()))));
  const changes = state.changes.filter((change) => change.name === name);
  const stamp = changes.length + ' ' + (changes.length ? changes[changes.length - 1].at : 0) + ' ' + (first ? Math.floor(Date.now() / 1000) : '');
  if ($('events').dataset.key === name + stamp) return;
  $('events').dataset.key = name + stamp;
  fill(table('events'), changes.slice(-100).reverse().map((change) => line(clock(change.at), change.event + (change.text ? ': ' + change.text : ''), change.label || '–', change.token || '–')));
  showPast(changes);
}

// An end is seen at the next look, a beginning is known: two holds must not seem to overlap because of that.
function trim(holds) {
  holds.sort((a, b) => a.from - b.from);
  for (const hold of holds) {
    const next = holds.find((other) => other.from > hold.from && other.from < hold.to && other.from > hold.to - SEEN_LATE_MS);
    if (next && !hold.open) hold.to = next.from;
  }
  return holds;
}

// A hold is a grant and the end with the same token.
function showPast(changes) {
  const open = new Map(), holds = [], queued = [], waited = [];
  for (const change of changes) {
    if (change.event === 'granted') open.set(change.token, { from: change.at - change.ms, label: change.label });
    if (change.event in ENDS) {
      holds.push({ from: open.get(change.token)?.from ?? change.at - change.ms, to: change.at, how: change.event, label: change.label });
      open.delete(change.token);
    }
    if (change.event === 'queued') queued.push(change.at);
    if (change.event === 'granted' && queued.length) waited.push(change.at - queued.shift());
  }
  for (const { from, label } of open.values()) holds.push({ from, to: Date.now(), how: 'open', open: true, label });
  drawGantt(trim(holds).slice(-12));
  drawBars($('d-hold'), spread(holds.map((hold) => hold.to - hold.from)));
  drawBars($('d-wait'), spread(waited));
}

function drawGantt(holds) {
  if (!holds.length) { fill($('gantt'), [make('p', 'None since this instance looks.', { class: 'quiet' })]); return; }
  const low = Math.min(...holds.map((hold) => hold.from)), high = Math.max(...holds.map((hold) => hold.to)), width = Math.max(1, high - low);
  const svg = shape('svg', { viewBox: '0 0 800 ' + (holds.length * 22 + 16), 'aria-hidden': 'true' });
  holds.forEach((hold, i) => {
    const x = 12 + (hold.from - low) / width * 600;
    svg.append(shape('rect', { class: hold.how === 'expired' || hold.how === 'broken' ? 'bar bad' : 'bar', x, y: 10 + i * 22, height: 12, rx: 3, width: Math.max(3, (hold.to - hold.from) / width * 600) }));
    svg.append(shape('text', { x: 630, y: 20 + i * 22 }, duration(hold.to - hold.from) + ENDS[hold.how] + (hold.label ? ' · ' + hold.label : '')));
  });
  fill($('gantt'), [svg]);
}

function spread(values) {
  const bounds = [[10, '10 ms'], [100, '100 ms'], [1000, '1 s'], [10000, '10 s'], [60000, '1 min'], [Infinity, 'more']];
  const counts = bounds.map(([, label]) => ({ label, value: 0 }));
  for (const value of values) counts[bounds.findIndex(([bound]) => value <= bound)].value++;
  return counts;
}

function drawBars(place, values) {
  const most = Math.max(1, ...values.map((each) => each.value)), step = 400 / values.length;
  const svg = shape('svg', { viewBox: '0 0 400 120', role: 'img', 'aria-label': values.map((each) => each.label + ': ' + each.value).join(', ') });
  values.forEach((each, i) => {
    const height = each.value / most * 74;
    svg.append(shape('rect', { class: 'bar', x: i * step + step * .15, y: 96 - height, width: step * .7, height, rx: 3 }));
    svg.append(shape('text', { x: i * step + step / 2, y: 112, 'text-anchor': 'middle' }, each.label));
    if (each.value) svg.append(shape('text', { x: i * step + step / 2, y: 90 - height, 'text-anchor': 'middle' }, String(each.value)));
  });
  fill(place, [svg]);
}

// ---- The view Patterns ----

async function showPatterns() {
  const answer = await request('GET', '/v1/patterns');
  if (!answer.ok) return;
  const found = await answer.json();
  const top = found.locks.sort((a, b) => b.waitedMs - a.waitedMs);
  fill(table('heat'), top.slice(0, 25).map((lock) => {
    const most = Math.max(1, ...lock.minutes);
    const svg = shape('svg', { viewBox: '0 0 600 18', width: '100%', role: 'img', 'aria-label': 'waited most in a minute: ' + duration(most) });
    lock.minutes.forEach((ms, i) => svg.append(shape('rect', { class: 'bar', x: i * 10, y: 0, width: 9, height: 18, rx: 2, opacity: ms ? .15 + .85 * ms / most : .05 })));
    const row = line(lock.name), cell = make('td');
    cell.append(svg);
    row.append(cell);
    return row;
  }));
  fill(table('top'), top.slice(0, 10).map((lock) => line(lock.name, duration(lock.waitedMs))));
  drawBars($('losses'), found.lossesPerDay.map((day) => ({ label: new Date(day.day * 86400000).toISOString().slice(8, 10), value: day.lost })));
}

// ---- Breaking ----

function breakable() {
  const name = current().name;
  return locks().find((lock) => lock.name === name)?.holders[0];
}
function openBreaking() {
  const holder = breakable();
  if (!holder) return;
  $('breaking').dataset.token = holder.token;
  setText($('b-which'), holder.name);
  $('b-name').value = $('b-reason').value = '';
  setText($('b-words'), '');
  checkBreaking();
  $('breaking').showModal();
}
function checkBreaking() {
  $('b-go').disabled = $('b-name').value !== $('b-which').textContent || !$('b-reason').value.trim();
}
async function doBreak() {
  const name = $('b-which').textContent;
  const answer = await request('DELETE', '/v1/locks/' + encodeURIComponent(name) + '/holder?token=' + $('breaking').dataset.token + '&reason=' + encodeURIComponent($('b-reason').value.trim()));
  if (answer.status === 204) { $('breaking').close(); return; }
  const words = { 412: 'It changed hands meanwhile: nothing was broken. Look again who holds it now.', 403: 'You do not have the right to break locks.', 501: 'This engine cannot break a lock.' };
  setText($('b-words'), words[answer.status] || 'The engine did not answer: nothing is known about it.');
}

// ---- Where we are ----

function current() {
  const at = location.hash.replace(/^#\/?/, '');
  if (at.startsWith('lock/')) return { view: 'lock', name: decodeURIComponent(at.slice(5)) };
  return { view: at === 'patterns' ? 'patterns' : 'now' };
}
function show() {
  const at = current();
  for (const view of ['now', 'lock', 'patterns']) $('view-' + view).hidden = at.view !== view;
  for (const view of ['now', 'patterns']) at.view === view ? $('nav-' + view).setAttribute('aria-current', 'page') : $('nav-' + view).removeAttribute('aria-current');
  if (at.view === 'now') showNow();
  if (at.view === 'lock') showLock(at.name);
}
function showBand() {
  const quiet = state.heard ? performance.now() - state.heard : 0;
  const stale = !state.connected || quiet > STALE_MS + 1000;
  document.body.classList.toggle('stale', stale || !state.up);
  $('live').classList.toggle('bad', stale || !state.up);
  setText($('live'), stale ? (state.at ? 'stale since ' + clock(state.at) : 'not connected') : state.up ? 'live' : 'engine down' + (state.at ? ' since ' + clock(state.at) : ''));
  setText($('engine'), state.words || '');
}

// ---- The stream ----

function request(method, path) {
  const headers = state.token ? { Authorization: 'Bearer ' + state.token } : {};
  return fetch(path, { method, headers, cache: 'no-store' });
}
function take(event, data) {
  if (event === 'past' || event === 'changes') state.changes = (event === 'past' ? [] : state.changes).concat(data.changes).slice(-PAST_MAX);
  if (event === 'snapshot') { state.rows = data.rows; state.at = data.at; state.heard = performance.now(); }
  if (event === 'snapshot' || event === 'silence') { state.up = data.up; state.words = data.words; state.heard = performance.now(); }
  showBand();
  showSoon();
}
// What comes in one piece is drawn once.
let drawing = 0;
function showSoon() {
  drawing = drawing || requestAnimationFrame(() => { drawing = 0; show(); });
}
async function read(answer) {
  const reader = answer.body.getReader(), decoder = new TextDecoder();
  let text = '';
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    text += decoder.decode(value, { stream: true });
    for (let end; (end = text.indexOf('\n\n')) >= 0; text = text.slice(end + 2)) {
      const [event, data] = text.slice(0, end).split('\n');
      take(event.slice(7), JSON.parse(data.slice(6)));
    }
  }
}
function askToken() {
  return new Promise((resolve) => {
    $('asking').addEventListener('close', () => { state.token = $('t-token').value; sessionStorage.setItem('token', state.token); resolve(); }, { once: true });
    $('asking').showModal();
  });
}
async function listen() {
  for (;;) {
    try {
      const answer = await request('GET', '/v1/events');
      if (answer.status === 401) { await askToken(); continue; }
      if (answer.ok) { state.connected = true; await read(answer); }
    } catch (error) { /* the band says so */ }
    state.connected = false;
    showBand();
    await new Promise((resolve) => setTimeout(resolve, 1000));
  }
}

// ---- Start ----

addEventListener('hashchange', () => { show(); if (current().view === 'patterns') showPatterns(); if (document.activeElement !== $('filter')) $('main').focus({ preventScroll: true }); scrollTo(0, 0); });
addEventListener('keydown', (event) => {
  if (event.key === '/' && !/input/i.test(event.target.tagName)) { event.preventDefault(); location.hash = '#/'; show(); $('filter').focus(); }
});
$('filter').addEventListener('input', showNow);
$('break').addEventListener('click', openBreaking);
$('b-name').addEventListener('input', checkBreaking);
$('b-reason').addEventListener('input', checkBreaking);
$('b-cancel').addEventListener('click', () => $('breaking').close());
$('b-go').addEventListener('click', doBreak);
setInterval(() => { showBand(); if (state.connected && state.up) show(); }, 250);
setInterval(() => { if (current().view === 'patterns') showPatterns(); }, 10000);
show();
if (current().view === 'patterns') showPatterns();
listen();
