// runtimes.mjs - a short look at the package in other runtimes, which have no node:test of their own: exclusion, a wait, a
// blocked loop, many at once, the end.
//
//     bun runtimes.mjs URL
//     deno run -A runtimes.mjs URL
import { BusyError, Client } from 'holdfast';

const [first, second] = [new Client(process.argv[2]), new Client(process.argv[2])];
const sure = (is, what) => {
  if (!is) throw new Error(what);
};
const lease = await first.acquire('runtimes', { ttl: 1000 });
sure(await second.tryAcquire('runtimes') === null, 'two holders');
const refused = await second.acquire('runtimes', { wait: 50 }).catch((error) => error);
sure(refused instanceof BusyError && refused.code === 'HF_TIMEOUT', `instead of a time-out: ${refused}`);

const wait = second.acquire('runtimes');
for (const end = performance.now() + 3000; performance.now() < end;); // three ttls
sure(lease.held, 'a blocked loop lost its lease');
await lease.release();
const next = await wait;
sure(next.token > lease.token, 'the token did not rise');
await next.release();

await Promise.all(Array.from({ length: 500 }, async (_, i) => (await first.acquire(`runtimes/${i % 10}`)).release()));
sure((await first.list('runtimes')).length === 0, 'something is left');
await first.acquire('runtimes/closed');
await first.close();
await (await second.acquire('runtimes/closed', { wait: 0 })).release();
await second.close();
console.log('ok');
