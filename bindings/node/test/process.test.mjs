// process.test.mjs - however a process or a worker thread ends, it leaves nothing held that it could have released.
import assert from 'node:assert/strict';
import { everywhere, eventually, fresh, scheme, startOther } from './support.mjs';

/** The lock must be free long before the ttl of 20 s. */
async function isFree(client, name) {
  await (await client.acquire(name, { wait: 3000 })).release();
}

for (const [end, code] of [['natural', 0], ['exit', 3], ['exception', 1], ['rejection', 1], ['closing', 3]])
  everywhere(`a process that ends by ${end} leaves nothing held`, async (client, url) => {
    const name = fresh();
    const other = startOther('hold', url, name, end);
    assert.ok((await other.line()).token > 0);
    assert.deepEqual((await other.ended)[0], code, other.errors);
    await isFree(client, name);
  });

everywhere('a handler of SIGTERM that closes the client leaves nothing held', async (client, url) => {
  const name = fresh();
  const other = startOther('hold', url, name, 'sigterm');
  await other.line();
  assert.equal(await client.tryAcquire(name), null);
  other.kill('SIGTERM');
  assert.deepEqual(await other.ended, [0, null], other.errors);
  await isFree(client, name);
});

everywhere('on shared memory even SIGKILL leaves nothing held', async (client, url) => {
  const name = fresh();
  const other = startOther('hold', url, name, 'wait');
  await other.line();
  other.kill('SIGKILL');
  await other.ended;
  await isFree(client, name);
}, (url) => scheme(url) === 'local');

for (const end of ['natural', 'exit', 'exception', 'wait'])
  everywhere(`a worker thread that ends by ${end === 'wait' ? 'terminate()' : end} leaves nothing held`, async (client, url) => {
    const name = fresh();
    const other = startOther('worker', url, name, end);
    assert.ok((await other.line()).token > 0);
    assert.ok('workerEnded' in await other.line());
    await isFree(client, name);
    other.kill();
    await other.ended;
  });

everywhere('an open client lets the process end, a pending wait does not', async (client, url) => {
  const name = fresh();
  const lease = await client.acquire(name);
  const other = startOther('wait', url, name);
  await eventually(async () => (await client.show(name)).length === 2, 'the waiter');
  await lease.release();
  assert.ok((await other.line()).token > lease.token);
  assert.deepEqual((await other.ended)[0], 0, other.errors);
  await isFree(client, name);
});

everywhere('work that only waits for the loss of its lease lets the process end, which releases the lease', async (client, url) => {
  const name = fresh();
  const other = startOther('idle', url, name);
  assert.ok((await other.line()).token > 0);
  assert.deepEqual((await other.ended)[0], 0, other.errors);
  await isFree(client, name);
});
