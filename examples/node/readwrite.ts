// readwrite.ts - many readers or one writer; a reader that finds the page stale becomes the writer.
import { Client, BusyError } from 'holdfast';

async function main(): Promise<void> {
  const locks = new Client();
  let page = 1, readers = 0, most = 0;
  const read = () => locks.using('page', { kind: 'read' }, async () => {
    most = Math.max(most, ++readers);
    await new Promise((resolve) => setTimeout(resolve, 20));
    readers--;
    return page;
  });
  await Promise.all([read(), read(), read()]);

  const lease = await locks.acquire('page', { kind: 'read' });
  const other = await locks.acquire('page', { kind: 'read' });
  const refused = await lease.upgrade().then(() => false, (error: unknown) => error instanceof BusyError);
  await other.release();
  await lease.upgrade();
  page++;
  await lease.downgrade();
  const seen = await read();
  await lease.release();
  await locks.close();
  if (most < 2 || !refused || seen !== 2) throw new Error(`${most} readers, refused ${refused}, page ${seen}`);
  console.log('readwrite: readers shared, an upgrade beside another reader was refused, alone it was granted');
}

void main();
