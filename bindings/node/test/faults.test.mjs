// faults.test.mjs - what other bindings get wrong: each of these tests fails without the care that the addon takes.
import assert from 'node:assert/strict';
import { setMaxListeners } from 'node:events';
import { readFile } from 'node:fs/promises';
import test from 'node:test';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { Client, LostError } from 'holdfast';
import { block, command, everywhere, eventually, fresh, scheme, sleep, startOther, urls } from './support.mjs';

setFlagsFromString('--expose-gc');
const collect = runInNewContext('gc');
const stopped = { url: process.env.HF_TEST_STOP_URL, pid: Number(process.env.HF_TEST_STOP_PID) };

everywhere('an event loop that is blocked for three ttls keeps its lock', async (client, url) => {
  const name = fresh();
  const ttl = 600;
  const lease = await client.acquire(name, { ttl });
  const other = startOther('contend', url, name, String(3 * ttl));
  await other.line();
  let least = Infinity;
  for (const end = performance.now() + 3 * ttl; performance.now() < end; least = Math.min(least, lease.remaining)) block(1);
  assert.equal((await other.line()).after, null);
  assert.ok(least > 0, `at one moment ${least} ms were left`);
  assert.ok(lease.held && !lease.signal.aborted);
  await lease.release();
});

everywhere('a broken lease aborts its signal within a renewal', async (client, url) => {
  const name = fresh();
  const told = [];
  client.on('lost', (lease, error) => told.push([lease, error]));
  const lease = await client.acquire(name, { ttl: 1500 });
  const next = client.using(name, () => 'next');
  const begun = performance.now();
  await command(url, 'break', name, '--token', String(lease.token), '--reason', 'test');
  await eventually(() => lease.signal.aborted, 'the abort');
  assert.ok(performance.now() - begun < 1500, 'later than a ttl');
  assert.ok(lease.signal.reason instanceof LostError);
  assert.deepEqual(told, [[lease, lease.signal.reason]]);
  assert.ok(!lease.held);
  await assert.rejects(lease.release(), LostError);
  assert.equal(await next, 'next');
});

everywhere('using() whose lease was lost rejects with LostError and the result beside it', async (client, url) => {
  const name = fresh();
  await assert.rejects(client.using(name, { ttl: 600 }, async (signal, lease) => {
    await command(url, 'break', name, '--token', String(lease.token), '--reason', 'test');
    await eventually(() => signal.aborted, 'the abort');
    return 'too late';
  }), (error) => error instanceof LostError && error.result === 'too late');
});

everywhere('if one of several is lost, the others are given up', async (client, url) => {
  const [a, b] = [fresh('a'), fresh('b')];
  const leases = await client.acquire([a, b], { ttl: 600 });
  await command(url, 'break', a, '--token', String(leases.tokens[a]), '--reason', 'test');
  await eventually(() => leases.signal.aborted, 'the abort');
  assert.ok(!leases.held);
  for (const lease of leases) assert.ok(lease.signal.aborted, lease.name);
  await (await client.acquire(b, { wait: 2000 })).release();
  await assert.rejects(leases.release(), LostError);
});

everywhere('a grant that came before the abort is given back', async (client, url) => {
  const other = new Client(url);
  for (let i = 0; i < 20; i++) {
    const name = fresh();
    const held = await other.acquire(name);
    const controller = new AbortController();
    const wait = client.acquire(name, { signal: controller.signal });
    wait.catch(() => {});
    await eventually(async () => (await other.show(name)).length === 2, 'the waiter');
    const released = held.release();
    block(i); // the grant arrives while the loop is blocked, before or after the abort
    controller.abort();
    await assert.rejects(wait, { name: 'AbortError' });
    await released;
    await (await other.acquire(name, { wait: 2000 })).release();
  }
  await other.close();
});

test('8 releases on a server that is stopped do not delay fs.readFile', { timeout: 30000 }, async () => {
  const client = new Client(stopped.url);
  const leases = await Promise.all(Array.from({ length: 8 }, () => client.acquire(fresh(), { ttl: 10000 })));
  await readFile(new URL(import.meta.url)); // the pool's threads are up
  process.kill(stopped.pid, 'SIGSTOP');
  try {
    const releases = Promise.allSettled(leases.map((lease) => lease.release()));
    await sleep(20);
    let best = Infinity; // of three: the machine may be busy, a blocked pool would delay them all
    for (let i = 0; i < 3; i++) {
      const begun = performance.now();
      await readFile(new URL(import.meta.url));
      best = Math.min(best, performance.now() - begun);
    }
    assert.ok(best < 20, `${best} ms`);
    process.kill(stopped.pid, 'SIGCONT');
    for (const { status, reason } of await releases) assert.equal(status, 'fulfilled', String(reason));
  } finally {
    process.kill(stopped.pid, 'SIGCONT');
    await client.close();
  }
});

// The addon takes replies that come soon without going back to the loop. It must stop doing so after a while, here, where
// all of them come soon.
test('a loop of pairs leaves the event loop to others', { timeout: 30000 }, async () => {
  const url = urls.find((url) => scheme(url) === 'redis');
  const client = new Client(`${url}?spin=1ms`);
  const name = fresh();
  let pairs = 0, before = 0, most = 0;
  const turn = () => {
    most = Math.max(most, pairs - before);
    before = pairs;
    if (pairs < 3000) setImmediate(turn);
  };
  await (await client.acquire(name)).release();
  setImmediate(turn);
  for (; pairs < 3000; pairs++) await (await client.acquire(name)).release();
  assert.ok(Math.max(most, pairs - before) < 60, `${most} pairs in one turn of the loop`);
  await client.close();
});

test('8 calls of list() and a close() on a server that is stopped do not delay fs.readFile', { timeout: 30000 }, async () => {
  const [client, closing] = [new Client(stopped.url), new Client(stopped.url)];
  await client.acquire(fresh());
  await closing.acquire(fresh());
  await readFile(new URL(import.meta.url)); // the pool's threads are up
  process.kill(stopped.pid, 'SIGSTOP');
  try {
    const lists = Promise.allSettled(Array.from({ length: 8 }, () => client.list()));
    const closed = closing.close({ timeout: 5000 }).catch((error) => error);
    await sleep(20);
    let best = Infinity;
    for (let i = 0; i < 3; i++) {
      const begun = performance.now();
      await readFile(new URL(import.meta.url));
      best = Math.min(best, performance.now() - begun);
    }
    assert.ok(best < 20, `${best} ms`);
    process.kill(stopped.pid, 'SIGCONT');
    await lists;
    assert.equal(await closed, undefined);
    assert.ok(Array.isArray(await client.list()));
  } finally {
    process.kill(stopped.pid, 'SIGCONT');
    await client.close();
  }
});

everywhere('maxStall: a loop that hangs is no longer renewed, one that turns is', async (client, url) => {
  const name = fresh();
  const hung = new Client(url, { maxStall: 400 });
  await hung.acquire(name, { ttl: 1000 });
  for (let i = 0; i < 20; i++) await sleep(100);
  assert.equal(await client.tryAcquire(name), null);
  const other = startOther('contend', url, name, '5000');
  await other.line();
  block(3000);
  assert.ok((await other.line()).after > 0, 'nobody got in');
  await hung.close();
  assert.throws(() => new Client(url, { maxStall: 'soon' }), { code: 'HF_INVALID' });
});

everywhere('the garbage collector releases nothing', async (client) => {
  const names = Array.from({ length: 50 }, () => fresh('dropped'));
  for (const name of names) await client.acquire(name);
  for (let i = 0; i < 5; i++) {
    collect();
    await sleep(10);
  }
  for (const name of names) assert.equal(await client.tryAcquire(name), null);
});

everywhere('10,000 cycles do not let memory grow', async (client) => {
  const name = fresh();
  const cycles = async (count) => {
    for (let i = 0; i < count; i++) await (await client.acquire(name, { wait: 0 })).release();
    for (let i = 0; i < 3; i++) {
      collect();
      await sleep(10);
    }
    const { heapUsed, rss } = process.memoryUsage();
    return { heapUsed, rss };
  };
  await cycles(2000);
  let before = await cycles(1000), after = await cycles(10000);
  // V8 makes room for new objects once, the newer the more. A leak grows again.
  if (after.rss - before.rss >= 8 << 20) [before, after] = [after, await cycles(10000)];
  assert.ok(after.heapUsed - before.heapUsed < 1 << 20, `heap ${after.heapUsed - before.heapUsed}`);
  assert.ok(after.rss - before.rss < 8 << 20, `rss ${after.rss - before.rss}`);
});

everywhere('1,000 waits that are aborted do not let memory grow, and nobody is left waiting', async (client) => {
  const name = fresh();
  const lease = await client.acquire(name);
  const aborts = async (count) => {
    for (let i = 0; i < count; i += 50) {
      const controller = new AbortController();
      setMaxListeners(50, controller.signal);
      const waits = Array.from({ length: 50 }, () => client.acquire(name, { signal: controller.signal }));
      const ended = Promise.allSettled(waits);
      await sleep(1);
      controller.abort();
      for (const { status } of await ended) assert.equal(status, 'rejected');
    }
    await eventually(async () => (await client.show(name)).length === 1, 'the end of the waits');
    collect();
    await sleep(10);
    collect();
    return process.memoryUsage().heapUsed;
  };
  await aborts(500);
  const before = await aborts(100);
  const after = await aborts(1000);
  assert.ok(after - before < 1 << 20, `heap ${after - before}`);
  assert.ok(lease.held);
  await lease.release();
});
