// breaking.js - the dialog that revokes one hold. It shows the hold, wants the name of the lock and
// a reason, and sends token, host and pid of exactly that holder. If another process holds with
// that token by now, the service refuses.
import { $, keepRows, make, makeRow, setText } from './elements.js';
import { leftOf, request, rowsOf, sinceOf } from './stream.js';
import { duration, isThroughService, units, who } from './words.js';

const REFUSALS = {
  412: 'This hold has ended meanwhile: nothing was broken. Look again who holds the lock now.',
  403: 'Your token does not have the right to break locks.',
  501: 'This engine cannot break a hold.',
};

let victim; // the holder whose button was pressed
let ended;  // the hold has ended meanwhile

const isVictim = (row) => row.role === 'holder' && row.token === victim.token && row.host === victim.host && row.pid === victim.pid;

const FACTS = {
  key: ([word]) => word,
  create([word]) {
    const { row, cells: [name, value] } = makeRow(['', '']);
    setText(name, word);
    value.className = 'cut';
    return { row, value };
  },
  update: (parts, [, text]) => setText(parts.value, text),
};

// The service's own pid would look like the victim's.
const processOf = (row) => `pid ${row.pid}` + (isThroughService(row) ? ', a service that holds it for its caller' : '');

function factsOf(row) {
  return [
    ['Lock', row.name], ['Holder', who(row)], ['Host', row.host || 'not known'], ['Process', processOf(row)], ['Token', row.token],
    ['Units', units(row)], ['Held for', duration(sinceOf(row))], ['Time left', ended ? 'none, it has ended' : duration(leftOf(row))],
  ];
}

function check() {
  $('b-go').disabled = ended || $('b-name').value !== victim.name || !$('b-reason').value.trim();
}

// Called four times a second: times in the dialog change, and the hold may end while the user
// reads.
export function tickBreaking() {
  if (!$('breaking').open) return;
  const now = rowsOf(victim.name).find(isVictim);
  if (now) victim = now;
  ended = !now;
  keepRows($('b-facts'), factsOf(victim), FACTS);
  if (ended) setText($('b-words'), 'This hold has ended: there is nothing to break any more.');
  check();
}

function nextWaiter(row) {
  const [first] = rowsOf(row.name).filter((each) => each.role === 'waiter').sort((a, b) => a.place - b.place);
  if (!first) return 'Nobody waits for it.';
  const from = isThroughService(first) ? 'through a service' : 'pid ' + first.pid;
  return `Next in the queue is ${who(first)} (${from}).`;
}

export function openBreaking(row) {
  victim = row;
  ended = false;
  setText($('b-which'), row.name);
  setText($('b-next'), nextWaiter(row));
  setText($('b-words'), '');
  $('b-name').value = $('b-reason').value = '';
  $('breaking').showModal();
  tickBreaking();
}

// Makes the button beside a holder.
export function makeBreak(parts) {
  const button = make('button', 'Break…', { type: 'button', class: 'small' });
  button.addEventListener('click', () => openBreaking(parts.holder));
  return button;
}

async function send() {
  const fields = { token: victim.token, host: victim.host, pid: victim.pid, reason: $('b-reason').value.trim() };
  const query = Object.entries(fields).map(([key, value]) => key + '=' + encodeURIComponent(value)).join('&');
  const answer = await request('DELETE', `/v1/locks/${encodeURIComponent(victim.name)}/holder?${query}`).catch(() => null);
  if (answer?.status === 204) $('breaking').close();
  else setText($('b-words'), REFUSALS[answer?.status] || 'The engine did not answer: the hold may be broken or not.');
}

export function prepareBreaking() {
  $('b-name').addEventListener('input', check);
  $('b-reason').addEventListener('input', check);
  $('b-cancel').addEventListener('click', () => $('breaking').close());
  $('b-go').addEventListener('click', send);
}
