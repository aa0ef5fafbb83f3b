// support.mjs - what the tests share: the places where locks are, names of their own, other processes.
import { spawn, execFile } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import test from 'node:test';
import { Client } from 'holdfast';

/** Where the tests run: a table of their own, a Redis server. */
export const urls = (process.env.HF_TEST_URLS ?? '').split(' ').filter(Boolean);
if (urls.length === 0) throw new Error('HF_TEST_URLS is empty');

let names = 0;
export const fresh = (what = 'name') => `${what}:${process.pid}:${++names}`;
export const scheme = (url) => url.slice(0, url.indexOf(':'));
export const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

/** A test for each place, with a client that is closed afterwards. */
export function everywhere(sentence, body, only = () => true) {
  for (const url of urls.filter(only))
    test(`${scheme(url)}: ${sentence}`, { timeout: 120000 }, async (t) => {
      const client = new Client(url);
      try {
        await body(client, url, t);
      } finally {
        await client.close();
      }
    });
}

/** Waits until the condition holds, for 10 s at most. */
export async function eventually(condition, what = 'the condition') {
  for (const end = Date.now() + 10000; Date.now() < end; await sleep(5))
    if (await condition()) return;
  throw new Error(`${what} did not come about`);
}

/** Uses the processor for so long that the event loop is blocked. */
export function block(ms) {
  for (const end = performance.now() + ms; performance.now() < end; );
}

/** Another process: test/other.mjs with these words. Its lines of JSON come by line(). */
export function startOther(...words) {
  const file = fileURLToPath(new URL('other.mjs', import.meta.url));
  const child = spawn(process.execPath, [file, ...words], { stdio: ['ignore', 'pipe', 'pipe'] });
  const lines = [];
  const wanted = [];
  let text = '';
  child.errors = '';
  child.stderr.on('data', (piece) => (child.errors += piece));
  child.stdout.on('data', (piece) => {
    text += piece;
    for (let end; (end = text.indexOf('\n')) >= 0; text = text.slice(end + 1))
      (wanted.shift() ?? ((line) => lines.push(line)))(JSON.parse(text.slice(0, end)));
  });
  child.line = () => lines.length ? Promise.resolve(lines.shift()) : new Promise((resolve, reject) => {
    wanted.push(resolve);
    child.once('close', () => reject(new Error(`ended without a line: ${child.errors}`)));
  });
  child.ended = once(child, 'close');
  return child;
}

/** The command, on the same locks. */
export async function command(url, ...words) {
  return promisify(execFile)(process.env.HOLDFAST, ['--url', url, ...words]);
}
