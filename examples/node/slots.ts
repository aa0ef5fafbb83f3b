// slots.ts - at most three uploads at a time, over all processes, without polling: the next one is told.
import { Client } from 'holdfast';

async function main(): Promise<void> {
  const locks = new Client();
  let inside = 0, most = 0, done = 0;
  const upload = () => locks.using('uploads', { capacity: 3 }, async () => {
    most = Math.max(most, ++inside);
    await new Promise((resolve) => setTimeout(resolve, 10));
    inside--;
    done++;
  });
  await Promise.all(Array.from({ length: 30 }, upload));
  await locks.close();
  if (most !== 3 || done !== 30) throw new Error(`${most} at a time, ${done} done`);
  console.log('slots: 30 uploads, never more than 3 at a time');
}

void main();
