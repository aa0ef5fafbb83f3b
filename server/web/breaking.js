// breaking.js - the dialog that takes a lock away: it wants the name and a reason, and the token proves who was seen.
import { $, setText } from './elements.js';
import { lockNamed } from './lock.js';
import { request } from './stream.js';

const REFUSALS = {
  412: 'It changed hands meanwhile: nothing was broken. Look again who holds it now.',
  403: 'You do not have the right to break locks.',
  501: 'This engine cannot break a lock.',
};

let seen; // the holder that was there when the dialog opened

function check() {
  $('b-go').disabled = $('b-name').value !== seen.name || !$('b-reason').value.trim();
}

function open(name) {
  seen = lockNamed(name).holders[0];
  if (!seen) return;
  setText($('b-which'), seen.name);
  setText($('b-words'), '');
  $('b-name').value = $('b-reason').value = '';
  check();
  $('breaking').showModal();
}

async function send() {
  const reason = encodeURIComponent($('b-reason').value.trim());
  const answer = await request('DELETE', `/v1/locks/${encodeURIComponent(seen.name)}/holder?token=${seen.token}&reason=${reason}`).catch(() => null);
  if (answer?.status === 204) $('breaking').close();
  else setText($('b-words'), REFUSALS[answer?.status] || 'The engine did not answer: nothing is known about it.');
}

export function prepareBreaking(nameShown) {
  $('break').addEventListener('click', () => open(nameShown()));
  $('b-name').addEventListener('input', check);
  $('b-reason').addEventListener('input', check);
  $('b-cancel').addEventListener('click', () => $('breaking').close());
  $('b-go').addEventListener('click', send);
}
