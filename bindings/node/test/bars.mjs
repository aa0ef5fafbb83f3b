// bars.mjs - what a lock costs beside npm redlock, in one warmed process: slices of 100 ms in turns, so that a change of load
// meets both. The figures are printed; the bars are asserted.
//
// Redlock's bars are met with client and server on one processor and on two: left alone they share one or not, as it happens.
//
//     HF_TEST_URLS='local:… redis://…' node bars.mjs     needs redlock5 and ioredis of npm in node_modules
//
// Not with node:test: its hooks run at every promise, which costs more than a lock on this machine.
import { execFileSync } from 'node:child_process';
import { availableParallelism } from 'node:os';
import { setTimeout as sleep } from 'node:timers/promises';
import Redis from 'ioredis';
import npm from 'redlock5';
import { Client } from 'holdfast';

const NpmRedlock = npm.default ?? npm;
const urls = process.env.HF_TEST_URLS.split(' ');
const server = urls.find((url) => url.startsWith('redis:'));
const local = urls.find((url) => url.startsWith('local:'));
const SLICES = 40, SLICE_MS = 100;
const say = (text) => console.log('# ' + text);
let names = 0, tests = 0;
const fresh = (what = 'bar') => `${what}-${process.pid}-${++names}`;
const ok = (what, is) => console.log(`${is ? 'ok' : 'not ok'} ${++tests} - ${what}`);
const median = (values) => [...values].sort((a, b) => a - b)[values.length >> 1];

/** Microseconds a pair in one slice, with so many in flight. */
async function slice(pair, inFlight) {
  let pairs = 0;
  const begun = performance.now();
  const end = begun + SLICE_MS;
  await Promise.all(Array.from({ length: inFlight }, async (_, i) => {
    for (; performance.now() < end; pairs++) await pair(i);
  }));
  return (performance.now() - begun) * 1000 / pairs;
}

/** The median of each kind over the slices, which take turns. */
async function inTurns(kinds, inFlight) {
  const seen = Object.fromEntries(Object.keys(kinds).map((name) => [name, []]));
  for (let i = -5; i < SLICES; i++) // the first ones warm up
    for (const [name, pair] of Object.entries(kinds)) {
      const cost = await slice(pair, inFlight);
      if (i >= 0) seen[name].push(cost);
    }
  for (const [name, costs] of Object.entries(seen))
    say(`${name}, ${inFlight} in flight: ${Math.min(...costs).toFixed(1)} us best, ${median(costs).toFixed(1)} us median`);
  return Object.fromEntries(Object.entries(seen).map(([name, costs]) => [name, median(costs)]));
}

const pin = (pid, processors) => execFileSync('taskset', ['-acp', processors, String(pid)], { stdio: 'ignore' });

/** Where the server runs and where this process does. */
function places() {
  const all = `0-${availableParallelism() - 1}`;
  const one = [['on one processor', '0', '0']];
  return availableParallelism() > 1 ? [...one, ['on two processors', '0', '1'], ['wherever they run', all, all]] : one;
}

async function besideRedlock(inFlight, bar) {
  const redis = new Redis(server);
  const pid = (await redis.info('server')).match(/process_id:(\d+)/)[1];
  for (const [where, ofServer, here] of places()) {
    pin(pid, ofServer);
    pin(process.pid, here);
    await besideRedlockHere(redis, inFlight, bar, where);
  }
  await redis.quit();
}

async function besideRedlockHere(redis, inFlight, bar, where) {
  const client = new Client(server);
  const redlock = new NpmRedlock([redis], { retryCount: 0 });
  const names = Array.from({ length: inFlight }, () => fresh());
  const { holdfast, redlock: theirs } = await inTurns({
    holdfast: async (i) => (await client.acquire(names[i])).release(),
    redlock: async (i) => (await redlock.acquire(['theirs' + names[i]], 10000)).release(),
  }, inFlight);
  await client.close();
  say(`${inFlight} in flight, ${where}: ${(holdfast / theirs).toFixed(2)} of the time of npm redlock`);
  ok(`${inFlight} in flight, ${where}: at most ${bar} of the time of npm redlock`, holdfast <= bar * theirs);
}

async function onThisMachine() {
  const client = new Client(local);
  const name = fresh();
  const { holdfast } = await inTurns({ holdfast: async () => (await client.acquire(name)).release() }, 1);
  await client.close();
  ok('local: at most 2.5 us a pair', holdfast <= 2.5);
}

/** Ten that want one lock, over two clients, with work of a millisecond. A wait is measured in the turns of
 * others: on a busy machine its milliseconds say how long the processors were taken by other programs. */
async function contended() {
  const clients = [new Client(server), new Client(server)];
  const name = fresh();
  const turns = Array(10).fill(0), waits = [], passed = [];
  let grants = 0;
  const begun = performance.now();
  await Promise.all(turns.map(async (_, i) => {
    while (performance.now() < begun + 4000) {
      const asked = performance.now(), before = grants;
      const lease = await clients[i % 2].acquire(name);
      waits.push(performance.now() - asked);
      passed.push(grants++ - before);
      turns[i]++;
      await sleep(1);
      await lease.release();
    }
  }));
  const all = turns.reduce((sum, n) => sum + n, 0);
  const jain = all ** 2 / (turns.length * turns.reduce((sum, n) => sum + n * n, 0));
  const fair = turns.length * (performance.now() - begun) / all, longest = Math.max(...waits), most = Math.max(...passed);
  for (const client of clients) await client.close();
  say(`${all} turns, Jain ${jain.toFixed(5)}, longest wait ${longest.toFixed(1)} ms, a fair one ${fair.toFixed(1)} ms, with at most ${most} turns of others`);
  ok('ten that want one lock: Jain is 0.999 or more', jain >= 0.999);
  ok('ten that want one lock: the longest wait is a fair one, the turns of the nine others', most <= turns.length - 1);
}

await besideRedlock(1, 0.9);
await besideRedlock(64, 0.6);
await onThisMachine();
await contended();
console.log(`1..${tests}`);
