// peers.mjs - beside npm redlock on the same servers: who lets a second holder in, and a crowd of both.
//
//     HF_TEST_CROWD_MS=60000 node --test peers.mjs   the crowd runs for so long on each set of servers
//
// Needs HF_TEST_QUORUM, and redlock5 and ioredis of npm in node_modules.
import assert from 'node:assert/strict';
import test, { before } from 'node:test';
import Redis from 'ioredis';
import npm from 'redlock5';
import Redlock from 'holdfast/redlock';
import { Client } from 'holdfast';
import { block, eventually, fresh, sleep, startOther } from './support.mjs';

const NpmRedlock = npm.default ?? npm;
const ports = process.env.HF_TEST_QUORUM.split(' ').map(Number);
const length = Number(process.env.HF_TEST_CROWD_MS ?? 3000);
const holdfast = { max_ttl: '2s' };
const connect = (size) => ports.slice(0, size).map((port) => new Redis(port, '127.0.0.1', { lazyConnect: false }));

before(() => eventually(async () => {
  const redlock = new Redlock(connect(3), { retryCount: 0, holdfast });
  const lock = await redlock.acquire([fresh()], 1000).catch(() => null);
  await redlock.quit();
  return lock;
}, 'a quorum'));

test('a loop blocked for three ttls: npm redlock lets a second holder in, Holdfast does not', { timeout: 30000 }, async () => {
  const ttl = 600;
  const url = `redis://127.0.0.1:${ports[0]}?prefix=`;
  const seconds = {};
  const clients = connect(1);
  const theirs = new NpmRedlock(clients, { automaticExtensionThreshold: 200 });
  theirs.on('error', () => {});
  const ours = new Redlock(clients);
  for (const [who, redlock] of Object.entries({ theirs, ours })) {
    const name = fresh(who);
    await redlock.using([name], ttl, { automaticExtensionThreshold: 200 }, async () => {
      const other = startOther('contend', url, name, String(3 * ttl));
      await other.line();
      block(3 * ttl);
      seconds[who] = (await other.line()).after;
    }).catch(() => {});
  }
  await ours.quit();
  assert.equal(seconds.ours, null);
  assert.ok(seconds.theirs > 0, `the peer kept its lock: ${seconds.theirs}`);
  console.log(`# second holder beside npm redlock after ${seconds.theirs} ms, beside Holdfast never`);
});

/** One who wants the lock again and again until the end; counts overlaps with everybody else. */
async function work(redlock, name, state, who, end) {
  while (Date.now() < end) {
    let lock;
    try {
      lock = await redlock.acquire([name], 2000);
    } catch {
      continue;
    }
    if (++state.inside > 1) state.overlaps++;
    await sleep(1);
    state.inside--;
    state.turns[who]++;
    await lock.release().catch(() => {});
  }
}

for (const size of [1, 3])
  test(`a crowd of both on ${size} server${size > 1 ? 's' : ''}: nobody overlaps`, { timeout: length + 30000 }, async () => {
    const name = fresh('{crowd}');
    const state = { inside: 0, overlaps: 0, turns: { theirs: 0, ours: 0 } };
    const theirs = new NpmRedlock(connect(size), { retryCount: 20, retryDelay: 5, retryJitter: 5 });
    theirs.on('error', () => {});
    const ours = new Redlock(connect(size), { retryCount: 20, retryDelay: 20, holdfast });
    const end = Date.now() + length;
    await Promise.all([0, 1, 2].flatMap(() => [work(theirs, name, state, 'theirs', end), work(ours, name, state, 'ours', end)]));
    await ours.quit();
    await theirs.quit();
    console.log(`# ${size} servers, ${length} ms: ${JSON.stringify(state)}`);
    assert.equal(state.overlaps, 0);
    assert.ok(state.turns.ours > 0 && state.turns.theirs > 0, JSON.stringify(state.turns));
  });

test('a lock of npm redlock is seen as another program\'s, and its end is waited for', { timeout: 30000 }, async () => {
  const name = fresh();
  const theirs = new NpmRedlock(connect(1), { retryCount: 0 });
  const client = new Client(`redis://127.0.0.1:${ports[0]}?prefix=`);
  const lock = await theirs.acquire([name], 1500);
  assert.equal(await client.tryAcquire(name), null);
  assert.ok((await client.show(name))[0].foreign);
  const begun = Date.now();
  const lease = await client.acquire(name, { wait: 5000 });
  assert.ok(Date.now() >= lock.expiration - 100 && Date.now() - begun < 4000);
  await assert.rejects(theirs.acquire([name], 500));
  await lease.release();
  await client.close();
  await theirs.quit();
});
