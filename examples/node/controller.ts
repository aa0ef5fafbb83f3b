// controller.ts - an HTTP service: 409 with Retry-After if others hold the lock, and SIGTERM that leaves nothing held.
import { createServer, type Server, type ServerResponse } from 'node:http';
import { once } from 'node:events';
import type { AddressInfo } from 'node:net';
import { Client, BusyError, UnavailableError } from 'holdfast';

/** Whole seconds until the hold that is in the way ends, as far as the server told. */
function retryAfter(error: BusyError): string {
  return String(Math.max(1, Math.ceil((error.retryAfter ?? 1000) / 1000)));
}

async function handle(locks: Client, name: string, response: ServerResponse): Promise<void> {
  try {
    await locks.using(name, { ttl: '5s', wait: 0 }, async () => {
      await new Promise((resolve) => setTimeout(resolve, 300));
      response.writeHead(200).end('done\n');
    });
  } catch (error) {
    if (error instanceof BusyError) response.writeHead(409, { 'Retry-After': retryAfter(error) }).end();
    else response.writeHead(error instanceof UnavailableError ? 503 : 500).end();
  }
}

/** First no new requests, then those that run, then the locks. */
async function shutDown(server: Server, locks: Client): Promise<void> {
  server.close();
  await once(server, 'close');
  await locks.close();
}

async function main(): Promise<void> {
  const locks = new Client();
  const server = createServer((request, response) => void handle(locks, `order:${request.url}`, response));
  await once(server.listen(0, '127.0.0.1'), 'listening');
  const ended = new Promise<void>((resolve) => {
    process.once('SIGTERM', () => resolve(shutDown(server, locks)));
  });

  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/7`;
  const first = fetch(url);
  let second = await fetch(url);
  while (second.status === 200) second = await fetch(url); // it may have come before the first
  const statuses = [(await first).status, second.status];
  const after = second.headers.get('retry-after');
  process.kill(process.pid, 'SIGTERM');
  await ended;
  if (!statuses.includes(409) || !(Number(after) >= 1)) throw new Error(`${statuses}, Retry-After ${after}`);
  console.log(`controller: the second request got 409 with Retry-After ${after}; SIGTERM left nothing held`);
}

void main();
