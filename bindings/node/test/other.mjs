// other.mjs - a process that the tests start: it holds a lock and ends in a certain way, or contends for one.
//
//     other.mjs hold URL NAME END      prints {token}, then ends: see ENDS
//     other.mjs worker URL NAME END    the same in a worker thread, then prints {workerEnded}
//     other.mjs wait URL NAME          prints {token} when it has waited for it, and ends with an open client
//     other.mjs idle URL NAME          prints {token}, and only waits for its lease to be lost
//     other.mjs contend URL NAME MS    tries every 20 ms and prints {after} when it gets the lock, or {after: null}
import { isMainThread, parentPort, Worker, workerData } from 'node:worker_threads';
import { fileURLToPath } from 'node:url';
import { Client } from 'holdfast';

const say = (value) => process.stdout.write(JSON.stringify(value) + '\n');
const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

const ENDS = {
  natural: () => {},
  exit: () => process.exit(3),
  exception: () => setImmediate(() => { throw new Error('uncaught on purpose'); }),
  rejection: () => { Promise.reject(new Error('unhandled on purpose')); },
  wait: () => { setInterval(() => {}, 1000); },
  closing: (client) => { client.close(); process.exit(3); },
  sigterm: () => { setInterval(() => {}, 1000); },
};

async function hold(url, name, end) {
  const client = new Client(url);
  const lease = await client.acquire(name, { ttl: 20000, wait: 0 });
  if (end === 'sigterm') process.once('SIGTERM', () => client.close().then(() => process.exit(0)));
  say({ token: lease.token });
  parentPort?.postMessage('held');
  ENDS[end](client);
}

async function wait(url, name) {
  const lease = await new Client(url).acquire(name);
  say({ token: lease.token });
}

/** The work waits for nothing but the loss of its lease. */
function idle(url, name) {
  void new Client(url).using(name, { ttl: 20000 }, (signal, lease) => {
    say({ token: lease.token });
    return new Promise((resolve) => signal.addEventListener('abort', resolve));
  });
}

async function contend(url, name, ms) {
  const client = new Client(url);
  const begun = performance.now();
  let lease = null;
  say({ ready: true });
  while (!lease && performance.now() - begun < ms) {
    lease = await client.tryAcquire(name);
    if (!lease) await sleep(20);
  }
  say({ after: lease && Math.round(performance.now() - begun) });
  await client.close();
}

/** The same as hold, inside a worker thread of a process that lives on. */
function worker(...words) {
  const thread = new Worker(fileURLToPath(import.meta.url), { workerData: words });
  thread.on('error', () => {});
  thread.on('exit', (code) => say({ workerEnded: code }));
  if (words[2] === 'wait') thread.once('message', () => setTimeout(() => thread.terminate(), 100));
  setTimeout(() => process.exit(0), 5000);
}

const [what, ...words] = isMainThread ? process.argv.slice(2) : ['hold', ...workerData];
await { hold, wait, idle, contend, worker }[what](...words);
