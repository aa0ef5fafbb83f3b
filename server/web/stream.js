// stream.js - the event stream that feeds the page. Everything shown comes from the last snapshot
// and the changes after it.
import { $ } from './elements.js';

const PAST_MAX = 1000;
const AGAIN_MS = 1000;

export const state = {
  rows: [], deadlocks: [], about: null, changes: [], words: '', at: 0, tripMs: -1, heard: 0, // at: the service's clock; heard: ours
  up: false, connected: false,
  token: sessionStorage.getItem('token') || '',
};

// ---- State ----

export function locks() {
  const all = new Map();
  for (const row of state.rows) {
    let lock = all.get(row.name);
    if (!lock) all.set(row.name, lock = { name: row.name, kind: row.kind, used: row.used, capacity: row.capacity, holders: [], waiters: [] });
    (row.role === 'holder' ? lock.holders : lock.waiters).push(row);
  }
  return [...all.values()];
}
export const rowsOf = (name) => state.rows.filter((row) => row.name === name);
const passed = () => state.heard ? performance.now() - state.heard : 0;
export const sinceOf = (row) => row.sinceMs + passed();
export const leftOf = (row) => row.leftMs < 0 ? -1 : Math.max(0, row.leftMs - passed());
export const partOf = (row) => row.ttlMs > 0 && row.leftMs >= 0 ? Math.min(1, leftOf(row) / row.ttlMs) : 1;
export const longestWait = (lock) => lock.waiters.reduce((most, row) => Math.max(most, sinceOf(row)), 0);

// ---- Requests ----

export function request(method, path) {
  const headers = state.token ? { Authorization: 'Bearer ' + state.token } : {};
  return fetch(path, { method, headers, cache: 'no-store' });
}

function askToken() {
  return new Promise((resolve) => {
    $('asking').addEventListener('close', () => {
      state.token = $('t-token').value;
      sessionStorage.setItem('token', state.token);
      resolve();
    }, { once: true });
    $('asking').showModal();
  });
}

// ---- Listening ----

function take(event, data) {
  if (event === 'past') state.changes = data.changes.slice(-PAST_MAX);
  if (event === 'changes') state.changes = state.changes.concat(data.changes).slice(-PAST_MAX);
  if (event === 'snapshot') Object.assign(state, { rows: data.rows, deadlocks: data.deadlocks, at: data.at, tripMs: data.roundTripMs });
  if (event === 'about') state.about = { ...data, heard: performance.now() };
  if (event === 'snapshot' || event === 'silence') Object.assign(state, { up: data.up, words: data.words, heard: performance.now() });
}

async function read(answer, changed) {
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = '';
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const events = (text + value).split('\n\n');
    text = events.pop();
    for (const each of events) {
      const [event, data] = each.split('\n');
      take(event.slice('event: '.length), JSON.parse(data.slice('data: '.length)));
    }
    if (events.length) changed();
  }
}

// Never returns. `changed` is called after every message.
export async function listen(changed) {
  for (;;) {
    try {
      const answer = await request('GET', '/v1/events');
      if (answer.status === 401) { await askToken(); continue; }
      if (answer.ok) { state.connected = true; await read(answer, changed); }
    } catch (error) { /* the band on top shows that the connection is lost */ }
    state.connected = false;
    changed();
    await new Promise((resolve) => setTimeout(resolve, AGAIN_MS));
  }
}
