'use strict';
// several.js - several names, all or none. They are taken one after the other in byte order, so that
// two callers cannot deadlock; what is already taken is renewed while the next name is waited for.
const { makeError } = require('./errors.js');
const { FOREVER } = require('./request.js');
const { Leases } = require('./lease.js');

function inOrder(names) {
  const sorted = names.map((name) => ({ name, bytes: Buffer.from(String(name)) }))
    .sort((a, b) => Buffer.compare(a.bytes, b.bytes)).map((one) => one.name);
  if (sorted.length === 0) throw makeError('INVALID', 'names: there are none');
  const twice = sorted.find((name, i) => i > 0 && name === sorted[i - 1]);
  if (twice !== undefined) throw makeError('INVALID', `names: ${twice} is asked for twice`);
  return sorted;
}

/** Ends a wait if the caller aborts, or if a lease that was taken before is lost. */
function makeGuard(signal) {
  const guard = new AbortController();
  const pass = () => guard.abort(signal.reason);
  signal?.addEventListener('abort', pass, { once: true });
  return {
    signal: guard.signal,
    watch: (lease) => lease.signal.addEventListener('abort', () => guard.abort(lease.signal.reason)),
    end: () => signal?.removeEventListener('abort', pass),
  };
}

/** take(name, wait, signal) -> promise of a Lease */
async function acquireAll(names, wait, signal, take) {
  const order = inOrder(names);
  const end = wait === FOREVER ? Infinity : performance.now() + wait;
  const guard = makeGuard(signal);
  const taken = new Map();
  try {
    for (const name of order) {
      const left = Math.max(0, Math.ceil(end - performance.now()));
      const lease = await take(name, wait && (end === Infinity ? FOREVER : left), guard.signal);
      taken.set(name, lease);
      guard.watch(lease);
      guard.signal.throwIfAborted();
    }
    return new Leases(names.map((name) => taken.get(name)));
  } catch (error) {
    await Promise.allSettled([...taken.values()].map((lease) => lease.release()));
    throw error;
  } finally {
    guard.end();
  }
}

module.exports = { acquireAll };
