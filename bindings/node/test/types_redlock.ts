// types_redlock.ts - holdfast/redlock with the words of node-redlock 5; never run.
import Redlock, { ExecutionError, ResourceLockedError, type Settings } from 'holdfast/redlock';

export async function order(clients: Iterable<unknown>): Promise<string> {
  const settings: Partial<Settings> = { retryCount: 3, retryDelay: 100 };
  const redlock = new Redlock(clients, settings);
  redlock.on('error', (error: unknown) => console.error(error));
  try {
    let lock = await redlock.acquire(['order:7'], 5000);
    lock = await lock.extend(10000);
    await lock.release();
    return await redlock.using(['order:8'], 5000, async (signal) => {
      if (signal.aborted) throw signal.error;
      return 'done';
    });
  } catch (error) {
    if (error instanceof ResourceLockedError) return 'busy';
    if (error instanceof ExecutionError) return String(error.attempts.length);
    throw error;
  }
}
