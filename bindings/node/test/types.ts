// types.ts - what TypeScript must take, and what it must refuse; never run.
import { Client, BusyError, LostError, type AcquireOptions, type Lease, type Row } from 'holdfast';

async function book(locks: Client, options: AcquireOptions): Promise<number> {
  await using lease = await locks.acquire('seat:1', { ttl: '30s', wait: 5000, ...options });
  const both = await locks.acquire(['seat:2', 'seat:3']);
  const tokens: Record<string, number> = both.tokens;
  await both.release();
  const maybe: Lease | null = await locks.tryAcquire('seat:4', { capacity: 3, units: 2 });
  await maybe?.release();
  const rows: Row[] = await locks.list('seat:');
  return locks.using('seat:5', { kind: 'write' }, async (signal, inner) => {
    signal.throwIfAborted();
    await inner.downgrade();
    return inner.token + lease.token + rows.length + Object.keys(tokens).length;
  });
}

function explain(error: unknown): string {
  if (error instanceof BusyError) return error.code;
  return error instanceof LostError ? String(error.result) : 'other';
}

export async function main(): Promise<void> {
  const locks = new Client('local:', { logLevel: 'info' });
  locks.on('lost', (lease, error) => console.log(lease.name, error.code));
  locks.on('log', (entry) => console.log(entry.level, entry.event));
  // @ts-expect-error: there is no such kind
  await locks.acquire('a', { kind: 'shared' }).catch(explain);
  // @ts-expect-error: there is no such option
  await locks.acquire('a', { til: 5 }).catch(explain);
  await book(locks, { owner: 'order-7', label: 'booking' });
  await locks.close({ timeout: '1s' });
}
