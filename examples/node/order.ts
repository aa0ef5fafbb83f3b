// order.ts - code written for node-redlock: only the import has changed.
import Redlock, { ResourceLockedError } from 'holdfast/redlock';

// In your program: [new Redis(...), new Redis(...)] of ioredis. What matters of a client are its options.
const clients = (process.env.REDIS_PORTS ?? '6379').split(' ')
  .map((port) => ({ options: { host: '127.0.0.1', port: Number(port) } }));

let charged = 0;

async function charge(redlock: Redlock, order: string): Promise<string> {
  try {
    let lock = await redlock.acquire([`{orders}:${order}`], 1000);
    try {
      lock = await lock.extend(1500);
      await new Promise((resolve) => setTimeout(resolve, 50));
      charged++;
    } finally {
      await lock.release();
    }
    return 'charged';
  } catch (error) {
    if (error instanceof ResourceLockedError) return 'busy';
    throw error;
  }
}

async function main(): Promise<void> {
  const redlock = new Redlock(clients, { retryCount: 0, holdfast: { max_ttl: '2s' } });
  const answers = await Promise.all([charge(redlock, '7'), charge(redlock, '7'), charge(redlock, '7')]);
  await redlock.quit();
  if (charged !== 1 || answers.filter((answer) => answer === 'busy').length !== 2)
    throw new Error(`charged ${charged} times: ${answers}`);
  console.log(`order: on ${clients.length} servers, 3 tried, charged once`);
}

void main();
