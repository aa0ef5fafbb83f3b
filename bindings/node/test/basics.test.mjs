// basics.test.mjs - what the package promises while nothing goes wrong, on every place.
import assert from 'node:assert/strict';
import diagnostics from 'node:diagnostics_channel';
import { cpSync, mkdtempSync, realpathSync, rmSync } from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import path from 'node:path';
import test from 'node:test';
import * as holdfast from 'holdfast';
import { everywhere, eventually, fresh, sleep, urls } from './support.mjs';

const { Client, BusyError, HoldfastError, LostError } = holdfast;
const isRejected = (code, kind = HoldfastError) => (error) => {
  assert.equal(error.code, code, error.message);
  assert.ok(error instanceof kind, error.name);
  return true;
};

test('require() and import get the same classes', () => {
  const required = createRequire(import.meta.url)('holdfast');
  for (const name of ['Client', 'Lease', 'Leases', 'HoldfastError', 'BusyError', 'LostError', 'UnavailableError'])
    assert.equal(required[name], holdfast[name], name);
  assert.match(holdfast.version, /^\d+\.\d+\.\d+$/);
  assert.ok(holdfast.engines.includes('local'));
});

// Two versions in a tree of dependencies are two copies. Memory that every thread gets at its start (static TLS) would
// run out with the second one.
test('several copies of the package live in one process, and share its locks', async () => {
  const folder = mkdtempSync(path.join(tmpdir(), 'holdfast-copies-'));
  const require = createRequire(import.meta.url);
  const original = path.dirname(path.dirname(realpathSync(require.resolve('holdfast'))));
  const clients = [new Client(urls[0])], name = fresh();
  try {
    for (let i = 0; i < 4; i++) {
      const copy = path.join(folder, `copy${i}`);
      cpSync(original, copy, { recursive: true });
      clients.push(new (require(copy).Client)(urls[0]));
    }
    const lease = await clients.at(-1).acquire(name);
    for (const client of clients) assert.equal(await client.tryAcquire(name), null);
    await lease.release();
  } finally {
    for (const client of clients) await client.close();
    rmSync(folder, { recursive: true });
  }
});

test('a bad URL throws in the constructor, and an unknown option in the call', async () => {
  assert.throws(() => new Client('nowhere://x'), isRejected('HF_CONFIG'));
  for (const logLevel of ['loud', 'toString'])
    assert.throws(() => new Client(urls[0], { logLevel }), isRejected('HF_INVALID'));
  const client = new Client(urls[0]);
  for (const [options, word] of [[{ til: 1 }, 'til'], [{ ttl: -1 }, 'ttl'], [{ ttl: '5' }, 'ttl'], [{ ttl: 1.5 }, 'ttl'],
    [{ kind: 'shared' }, 'kind'], [{ kind: 'toString' }, 'kind'], [{ capacity: -1 }, 'capacity'], [{ owner: 7 }, 'owner'],
    [{ owner: 'a\0b' }, 'owner'], [{ owner: 'half \ud800' }, 'owner'], [{ wait: 'soon' }, 'wait']])
    await assert.rejects(client.acquire('a', options), (error) => error.code === 'HF_INVALID' && error.message.includes(word));
  for (const name of [7, '', 'a\0b', 'x'.repeat(513), 'half \ud800'])
    await assert.rejects(client.acquire(name), isRejected('HF_INVALID'));
  for (const options of [5000, '5s', true, () => {}])
    await assert.rejects(client.acquire('a', options), (error) => error.code === 'HF_INVALID' && error.message.includes('options'));
  for (const work of [undefined, null, {}, 'work'])
    await assert.rejects(client.using('a', {}, work), isRejected('HF_INVALID'));
  assert.equal(client.counters().asked, 0);
  await client.close();
});

everywhere('null stands for no options', async (client) => {
  const name = fresh();
  await (await client.acquire(name, null)).release();
  await (await client.tryAcquire(name, null)).release();
  assert.equal(await client.using(name, null, async () => 7), 7);
});

everywhere('a lock is held by one, and its token rises', async (client) => {
  const name = fresh();
  const first = await client.acquire(name, { ttl: '10s' });
  assert.ok(first.held && first.remaining > 5000 && first.remaining <= 10000);
  assert.equal(first.name, name);
  assert.equal(await client.tryAcquire(name), null);
  await first.release();
  assert.ok(!first.held && first.remaining === 0);
  const second = await client.tryAcquire(name);
  assert.ok(second.token > first.token);
  await second.release();
  await assert.rejects(second.release(), isRejected('HF_NOT_HELD', LostError));
});

everywhere('a wait ends with BUSY, with TIMEOUT, or with the grant', async (client) => {
  const name = fresh();
  const lease = await client.acquire(name);
  await assert.rejects(client.acquire(name, { wait: 0 }), isRejected('HF_BUSY', BusyError));
  assert.equal(await client.tryAcquire(name), null);
  const begun = performance.now();
  await assert.rejects(client.acquire(name, { wait: 100 }), isRejected('HF_TIMEOUT', BusyError));
  assert.ok(performance.now() - begun >= 95);
  const next = client.acquire(name);
  await lease.release();
  await (await next).release();
});

everywhere('BUSY and TIMEOUT say who holds it, and for how long', async (client) => {
  const name = fresh();
  const lease = await client.acquire(name, { ttl: 20000, label: 'the nightly job' });
  for (const wait of [0, 80]) {
    const error = await client.acquire(name, { wait }).catch((e) => e);
    assert.ok(error instanceof BusyError, String(error));
    const { pid, label, token } = error.holder;
    assert.deepEqual({ pid, label, token }, { pid: process.pid, label: 'the nightly job', token: lease.token });
    assert.ok(error.retryAfter > 10000 && error.retryAfter <= 20000, String(error.retryAfter));
  }
  await lease.release();
});

everywhere('waiters are served in the order in which they asked', async (client) => {
  const name = fresh();
  const lease = await client.acquire(name);
  const order = [];
  const waits = [];
  for (let i = 0; i < 5; i++) {
    waits.push(client.using(name, () => order.push(i)));
    await eventually(async () => (await client.show(name)).length === i + 2, `waiter ${i}`);
  }
  await lease.release();
  await Promise.all(waits);
  assert.deepEqual(order, [0, 1, 2, 3, 4]);
});

everywhere('using() returns the result, passes errors through, and releases after both', async (client) => {
  const name = fresh();
  assert.equal(await client.using(name, async (signal, lease) => {
    assert.ok(signal instanceof AbortSignal && !signal.aborted);
    assert.equal(await client.tryAcquire(name), null);
    return lease.token && 'done';
  }), 'done');
  const own = new RangeError('mine');
  await assert.rejects(client.using(name, { wait: 0 }, () => { throw own; }), (error) => error === own);
  await (await client.acquire(name, { wait: 0 })).release();
});

everywhere('the end of `await using` releases, once', async (client) => {
  const name = fresh();
  const lease = await client.acquire(name);
  await lease[Symbol.asyncDispose]();
  await lease[Symbol.asyncDispose]();
  await (await client.acquire(name, { wait: 0 })).release();
});

everywhere('an AbortSignal ends a wait with its reason', async (client) => {
  const name = fresh();
  const lease = await client.acquire(name);
  const reason = new Error('not any more');
  await assert.rejects(client.acquire(name, { signal: AbortSignal.abort(reason) }), (error) => error === reason);
  const controller = new AbortController();
  const wait = client.acquire(name, { signal: controller.signal });
  await eventually(async () => (await client.show(name)).length === 2, 'the waiter');
  controller.abort(reason);
  await assert.rejects(wait, (error) => error === reason);
  await eventually(async () => (await client.show(name)).length === 1, 'the end of the wait');
  await lease.release();
});

everywhere('several names are taken all or none, and two callers in opposite order do not deadlock', async (client) => {
  const [a, b] = [fresh('a'), fresh('b')];
  const leases = await client.acquire([b, a]);
  assert.deepEqual([...leases].map((lease) => lease.name), [b, a]);
  assert.deepEqual(Object.keys(leases.tokens).sort(), [a, b]);
  assert.ok(leases.held && leases.remaining > 0);
  assert.equal(await client.tryAcquire(a), null);
  await leases.extend('20s');
  await leases.release();
  const held = await client.acquire(b);
  assert.equal(await client.tryAcquire([a, b]), null);
  await (await client.acquire(a, { wait: 0 })).release();
  await held.release();
  let turns = 0;
  const swap = async (names) => {
    for (let i = 0; i < 20; i++) await client.using(names, {}, () => turns++);
  };
  await Promise.all([swap([a, b]), swap([b, a])]);
  assert.equal(turns, 40);
  await assert.rejects(client.acquire([a, a]), isRejected('HF_INVALID'));
  await assert.rejects(client.acquire([]), isRejected('HF_INVALID'));
});

everywhere('an abort during the wait for one of several gives the others back', async (client) => {
  const [a, b] = [fresh('a'), fresh('b')];
  const held = await client.acquire(b);
  const controller = new AbortController();
  const wait = client.acquire([a, b], { signal: controller.signal });
  await eventually(async () => (await client.show(b)).length === 2, 'the waiter');
  controller.abort();
  await assert.rejects(wait, { name: 'AbortError' });
  await (await client.acquire(a, { wait: 1000 })).release();
  await held.release();
});

everywhere('a semaphore has its capacity, readers share, a writer is alone', async (client) => {
  const pool = fresh('pool');
  const two = [await client.acquire(pool, { capacity: 2 }), await client.acquire(pool, { capacity: 2 })];
  assert.equal(await client.tryAcquire(pool, { capacity: 2 }), null);
  await two[0].release();
  await (await client.acquire(pool, { capacity: 2, units: 1, wait: 0 })).release();
  await assert.rejects(client.acquire(pool, { capacity: 3, wait: 0 }), isRejected('HF_MISMATCH'));
  await two[1].release();
  const page = fresh('page');
  const readers = [await client.acquire(page, { kind: 'read' }), await client.acquire(page, { kind: 'read' })];
  assert.equal(await client.tryAcquire(page, { kind: 'write' }), null);
  await assert.rejects(readers[0].upgrade(), isRejected('HF_BUSY', BusyError));
  await readers[1].release();
  const before = readers[0].token;
  await readers[0].upgrade();
  assert.ok(readers[0].token > before);
  assert.equal(await client.tryAcquire(page, { kind: 'read' }), null);
  await readers[0].downgrade();
  await (await client.acquire(page, { kind: 'read', wait: 0 })).release();
  await readers[0].release();
});

everywhere('an owner is let in again, and each level is released by its own lease', async (client) => {
  const name = fresh();
  const outer = await client.acquire(name, { owner: 'order-7' });
  const inner = await client.acquire(name, { owner: 'order-7', wait: 0 });
  assert.equal(await client.tryAcquire(name, { owner: 'order-8' }), null);
  await inner.release();
  assert.equal(await client.tryAcquire(name), null);
  await outer.release();
  await (await client.acquire(name, { wait: 0 })).release();
});

everywhere('extend() lengthens and never shortens; without renewal the lease ends with its ttl', async (client) => {
  const name = fresh();
  const lease = await client.acquire(name, { ttl: 1000, renew: false });
  await Promise.all([lease.extend(20000), lease.extend(10000), lease.extend()]);
  assert.ok(lease.remaining > 15000, String(lease.remaining));
  await lease.release();
  await assert.rejects(lease.extend(), isRejected('HF_NOT_HELD', LostError));
  const short = await client.acquire(name, { ttl: 300, renew: false });
  await eventually(() => short.signal.aborted, 'the loss');
  assert.ok(short.signal.reason instanceof LostError);
  await assert.rejects(short.release(), LostError);
  const kept = await client.acquire(name, { ttl: 300 });
  await sleep(1000);
  assert.ok(kept.held);
  await kept.release();
});

everywhere('maxHold ends the renewal', async (client) => {
  const lease = await client.acquire(fresh(), { ttl: 300, maxHold: 500 });
  const begun = performance.now();
  await eventually(() => lease.signal.aborted, 'the loss');
  assert.ok(performance.now() - begun >= 300);
});

everywhere('list() and show() name holders and waiters', async (client) => {
  const name = fresh('listed');
  const lease = await client.acquire(name, { label: 'nightly report' });
  const controller = new AbortController();
  const wait = client.acquire(name, { signal: controller.signal });
  await eventually(async () => (await client.show(name)).length === 2, 'the waiter');
  const rows = await client.list(name.slice(0, -1));
  const [holder, waiter] = rows.filter((row) => row.name === name);
  assert.deepEqual([holder.role, waiter.role, waiter.place], ['holder', 'waiter', 1]);
  assert.equal(holder.label, 'nightly report');
  assert.equal(holder.token, lease.token);
  assert.equal(holder.pid, process.pid);
  assert.ok(holder.leftMs > 0 && !holder.foreign);
  controller.abort();
  await assert.rejects(wait);
  await lease.release();
});

everywhere('close() with waits in flight ends them with HF_CLOSED and releases what is held', async (client, url) => {
  const [name, mine] = [fresh(), fresh()];
  const other = new Client(url);
  const held = await other.acquire(name);
  const own = await client.acquire(mine);
  const waits = Array.from({ length: 20 }, () => assert.rejects(client.acquire(name), isRejected('HF_CLOSED')));
  await eventually(async () => (await other.show(name)).length === 21, 'the waiters');
  const listing = client.list();
  await client.close();
  await Promise.all(waits);
  await listing.catch(isRejected('HF_CLOSED'));
  assert.ok(client.closed && !own.held && own.remaining === 0);
  await assert.rejects(own.release(), isRejected('HF_CLOSED'));
  await assert.rejects(client.acquire(name), isRejected('HF_CLOSED'));
  await assert.rejects(client.list(), isRejected('HF_CLOSED'));
  await client.close();
  await (await other.acquire(mine, { wait: 1000 })).release();
  assert.equal((await other.show(name)).length, 1);
  await held.release();
  await other.close();
});

test('close() at once, before the client was ever used', async () => {
  const client = new Client('redis://127.0.0.1:1');
  await client.close();
  await assert.rejects(client.acquire('a'), isRejected('HF_CLOSED'));
});

test('a server that nobody can reach is an UnavailableError', async () => {
  const client = new Client('redis://127.0.0.1:1');
  await assert.rejects(client.acquire('a', { wait: 0 }), (error) => error instanceof holdfast.UnavailableError);
  await client.close({ timeout: 100 });
});

everywhere('counters, settings and the log are there', async (client, url) => {
  const name = fresh();
  const entries = [];
  client.logLevel = 'debug';
  client.on('log', (entry) => entries.push(entry));
  await client.using(name, { correlationId: 'abc' }, () => {});
  await eventually(() => entries.some((entry) => entry.event === 'released'), 'the log');
  const granted = entries.find((entry) => entry.event === 'granted' && entry.name === name);
  assert.equal(granted.correlationId, 'abc');
  assert.ok(granted.token > 0);
  assert.ok(client.counters().granted >= 1 && client.counters().released >= 1);
  assert.deepEqual(client.setting('ttl'), { value: 30000, source: 'default' });
  const slow = new Client(url + (url.includes('?') ? '&' : '?') + 'wait=50ms');
  const lease = await client.acquire(name);
  await assert.rejects(slow.acquire(name), isRejected('HF_TIMEOUT'));
  await assert.rejects(slow.acquire([fresh(), name]), BusyError);
  await lease.release();
  await slow.close();
});

everywhere('diagnostics channels tell of every grant and end, and trace an acquire', async (client) => {
  const name = fresh();
  const seen = [];
  const listen = (channel, what) => {
    const listener = (message) => (message.lease?.name === name || message.name === name) && seen.push(what);
    diagnostics.subscribe(channel, listener);
    return () => diagnostics.unsubscribe(channel, listener);
  };
  const stops = [listen('holdfast:granted', 'granted'), listen('holdfast:ended', 'ended'),
    listen('tracing:holdfast:acquire:start', 'start'), listen('tracing:holdfast:acquire:asyncEnd', 'end')];
  await client.using(name, () => {});
  stops.forEach((stop) => stop());
  await client.using(name, () => {});
  assert.deepEqual(seen.sort(), ['end', 'ended', 'granted', 'start']);
});
