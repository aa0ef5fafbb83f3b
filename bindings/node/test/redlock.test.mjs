// redlock.test.mjs - holdfast/redlock in the place of node-redlock: on one server and on three.
import assert from 'node:assert/strict';
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';
import test, { before } from 'node:test';
import Redlock, { ExecutionError, Lock, LockError, ResourceLockedError } from 'holdfast/redlock';
import { command, eventually, fresh, sleep } from './support.mjs';

// What matters of an ioredis client are its options; the connections are Holdfast's own.
const ports = process.env.HF_TEST_QUORUM.split(' ').map(Number);
const clientOf = (port, more = {}) => ({ options: { host: '127.0.0.1', port, db: 0, ...more } });
const holdfast = { max_ttl: '2s' };

// A server that started less than max_ttl ago does not count in a quorum.
before(() => eventually(async () => {
  const redlock = new Redlock(ports.map((port) => clientOf(port)), { retryCount: 0, holdfast });
  const lock = await redlock.acquire([fresh()], 1000).catch(() => null);
  await redlock.quit();
  return lock;
}, 'a quorum'));

function onBoth(sentence, body) {
  for (const size of [1, 3])
    test(`${size} server${size > 1 ? 's' : ''}: ${sentence}`, { timeout: 30000 }, async () => {
      const redlock = new Redlock(ports.slice(0, size).map((port) => clientOf(port)), { retryCount: 0, holdfast });
      try {
        await body(redlock, `redlock://${ports.slice(0, size).map((port) => `127.0.0.1:${port}`)}`, size);
      } finally {
        await redlock.quit();
      }
    });
}

test('require() is the class, with what version 5 exports beside it', () => {
  const required = createRequire(import.meta.url)('holdfast/redlock');
  assert.equal(required, Redlock);
  for (const name of ['Lock', 'ExecutionError', 'ResourceLockedError', 'LockError']) assert.ok(required[name], name);
  assert.equal(required.default, Redlock);
  assert.equal(LockError, ExecutionError);
});

test('clients that it cannot use are refused with a reason', () => {
  assert.throws(() => new Redlock([]), /at least one client/);
  assert.throws(() => new Redlock([{}]), /neither of ioredis nor of node-redis/);
  assert.throws(() => new Redlock([{ isCluster: true }]), /Cluster/);
  assert.throws(() => new Redlock([{ options: { sentinels: [] } }]), /Sentinel/);
  assert.throws(() => new Redlock([clientOf(1, { tls: { rejectUnauthorized: false } })]), /always verified/);
  assert.throws(() => new Redlock([clientOf(1, { tls: { pfx: 'x' } })]), /tls\.pfx/);
  assert.throws(() => new Redlock([clientOf(1, { tls: { ca: 'a' } }), clientOf(2, { tls: { ca: 'b' } })]), /same certificates/);
  assert.throws(() => new Redlock([clientOf(1), clientOf(2, { keyPrefix: 'a' })]), /keyPrefix/);
});

test('the URL of a client has every part of its place', () => {
  const require = createRequire(import.meta.url);
  const { urlOf } = require(join(dirname(require.resolve('holdfast')), 'redlock_url.js'));
  const watched = { sentinels: [{ host: 's1' }, { host: '::1', port: 1 }], name: 'my/one?' };
  for (const [options, url] of [
    [{ url: 'redis://[::1]:7/3' }, 'redis://[::1]:7/3?prefix='],
    [{ url: 'rediss://u:p%40@h:1' }, 'rediss://u:p%40@h:1?prefix='],
    [{ host: '::1' }, 'redis://[::1]:6379?prefix='],
    [{ path: '/run/a b?c' }, 'redis+unix:///run/a%20b%3Fc?prefix='],
    [watched, 'redis+sentinel://s1:26379,[::1]:1/my%2Fone%3F?sentinel_tls=0&prefix='],
    [{ ...watched, tls: {} }, 'redis+sentinel://s1:26379,[::1]:1/my%2Fone%3F?sentinel_tls=0&prefix='],
    [{ ...watched, tls: {}, enableTLSForSentinelMode: true, sentinelTLS: {} },
      'rediss+sentinel://s1:26379,[::1]:1/my%2Fone%3F?sentinel_tls=1&prefix='],
  ]) {
    assert.equal(urlOf([{ options }], {}), url);
    new Redlock([{ options }]); // the library takes it
  }
});

test('clients of node-redis are understood, by URL and by socket', async () => {
  for (const options of [{ url: `redis://127.0.0.1:${ports[0]}/0` }, { socket: { host: '127.0.0.1', port: ports[0] }, database: 0 }]) {
    const redlock = new Redlock([{ options }]);
    await (await redlock.acquire([fresh()], 1000)).release();
    await redlock.quit();
  }
});

onBoth('a duration that is not whole and positive is refused', async (redlock) => {
  await assert.rejects(redlock.acquire([fresh()], 5000.5), TypeError);
  await assert.rejects(redlock.acquire([fresh()], 0), RangeError);
});

onBoth('one resource is acquired, extended and released', async (redlock, url, size) => {
  const name = fresh('{redlock}one');
  const lock = await redlock.acquire([name], 500);
  assert.ok(lock instanceof Lock && lock.expiration > Date.now() && lock.token > 0);
  assert.equal((await lock.attempts[0]).votesFor.size, size);
  await assert.rejects(redlock.acquire([name], 500), ResourceLockedError);
  const longer = await lock.extend(1800);
  assert.equal(lock.expiration, 0);
  await sleep(700);
  await assert.rejects(redlock.acquire([name], 500), ResourceLockedError);
  assert.ok((await longer.release()).attempts.length === 1);
  await (await redlock.acquire([name], 500)).release();
});

onBoth('several resources are acquired, extended and released together', async (redlock) => {
  const [a, b] = [fresh('a'), fresh('b')];
  const lock = await redlock.acquire([b, a], 1000);
  assert.deepEqual(lock.resources, [b, a]);
  await assert.rejects(redlock.acquire([a], 500), ResourceLockedError);
  await (await lock.extend(1500)).release();
  const one = await redlock.acquire([a], 1000);
  await assert.rejects(redlock.acquire([b, a], 500), ResourceLockedError);
  await (await redlock.acquire([b], 500)).release();
  await one.release();
});

onBoth('a lock ends with its duration; then it can be neither extended nor released', async (redlock) => {
  const name = fresh();
  const lock = await redlock.acquire([name], 300);
  await sleep(500);
  const next = await redlock.acquire([name], 1000);
  await assert.rejects(lock.extend(500), ExecutionError);
  await assert.rejects(lock.release(), ExecutionError);
  assert.ok(next.lease.held);
  await next.release();
});

onBoth('a busy lock is an error with one attempt, which both classes of version 5 catch', async (redlock, url, size) => {
  const name = fresh();
  const lock = await redlock.acquire([name], 2000);
  const error = await redlock.acquire([name], 500).catch((e) => e);
  assert.ok(error instanceof ResourceLockedError && error instanceof ExecutionError, String(error));
  assert.equal(error.attempts.length, 1);
  assert.equal((await error.attempts[0]).votesAgainst.size, size);
  const wait = redlock.acquire([name], 500, { retryCount: 10, retryDelay: 200 });
  await lock.release();
  await (await wait).release();
});

onBoth('using() renews for as long as the routine runs', async (redlock) => {
  const name = fresh();
  const result = await redlock.using([name], 700, async (signal) => {
    await sleep(1500);
    assert.ok(!signal.aborted && signal.error === undefined);
    await assert.rejects(redlock.acquire([name], 500), ResourceLockedError);
    return 'done';
  });
  assert.equal(result, 'done');
  await (await redlock.acquire([name], 500)).release();
});

onBoth('using() lets one routine in at a time', async (redlock) => {
  const name = fresh();
  let inside = 0, turns = 0;
  await Promise.all(Array.from({ length: 5 }, () => redlock.using([name], 1000, { retryCount: -1 }, async () => {
    assert.equal(++inside, 1);
    await sleep(10);
    inside--;
    turns++;
  })));
  assert.equal(turns, 5);
});

onBoth('using() aborts its signal when the lock is lost, and what the routine throws comes through', async (redlock, url, size) => {
  const name = fresh();
  const place = size === 1 ? `redis://127.0.0.1:${ports[0]}?prefix=` : `${url}?max_ttl=2s&prefix=`;
  const own = new Error('stopped');
  await assert.rejects(redlock.using([name], 700, async (signal, lock) => {
    await command(place, 'break', name, '--token', String(lock.token), '--reason', 'test');
    await eventually(() => signal.aborted, 'the abort');
    assert.ok(signal.error instanceof Error);
    throw own;
  }), (error) => error === own);
});

test('a duration above the limit is renewed for so long', async () => {
  const redlock = new Redlock(ports.map((port) => clientOf(port)), { retryCount: 0, holdfast });
  const name = fresh();
  const lock = await redlock.acquire([name], 60000);
  await sleep(2500);
  await assert.rejects(redlock.acquire([name], 500), ResourceLockedError);
  await lock.release();
  await redlock.quit();
});

test('the names of version 4: lock, unlock, callbacks', async () => {
  const redlock = new Redlock([clientOf(ports[0])], { retryCount: 0 });
  const name = fresh();
  const lock = await redlock.lock(name, 1000);
  assert.deepEqual(lock.resource, [name]);
  const error = await new Promise((resolve) => redlock.lock(name, 1000, resolve));
  assert.ok(error instanceof LockError);
  await redlock.unlock(await lock.extend(1500));
  const again = await new Promise((resolve, reject) => redlock.lock([name], 1000, (e, value) => (e ? reject(e) : resolve(value))));
  await new Promise((resolve, reject) => again.unlock((e) => (e ? reject(e) : resolve())));
  await redlock.quit();
});

test('nothing is thrown by an event `error` that nobody listens to', async () => {
  const redlock = new Redlock([clientOf(1)], { retryCount: 0 });
  await assert.rejects(redlock.acquire([fresh()], 1000), ExecutionError);
  const told = [];
  redlock.on('error', (error) => told.push(error));
  await assert.rejects(redlock.acquire([fresh()], 1000), ExecutionError);
  assert.ok(told.length >= 1);
  await redlock.quit();
});
