// watchdog.ts - work that takes longer than the ttl, computes for longer than the ttl, and enters its own lock again.
import { Client, type Lease } from 'holdfast';

function compute(ms: number): void {
  for (const end = performance.now() + ms; performance.now() < end; );
}

async function audit(locks: Client, owner: string): Promise<number> {
  // Called under the lock as well as alone: the same owner is let in again.
  return locks.using('report', { owner, wait: 0 }, (_, inner) => inner.token);
}

async function report(locks: Client): Promise<Lease> {
  const owner = `report-${process.pid}`;
  const lease = await locks.acquire('report', { ttl: 500, owner });
  compute(1200); // no timer can run meanwhile; the library's own thread renews
  if (!lease.held) throw new Error('lost while the event loop was blocked');
  await audit(locks, owner);
  return lease;
}

async function main(): Promise<void> {
  const [mine, others] = [new Client(), new Client()];
  const lease = await report(mine);
  if (await others.tryAcquire('report')) throw new Error('a second holder');
  await lease.release();
  if (!(await others.tryAcquire('report'))) throw new Error('still held');
  await Promise.all([mine.close(), others.close()]);
  console.log('watchdog: held for two ttls with a blocked event loop, entered twice, released once each');
}

void main();
