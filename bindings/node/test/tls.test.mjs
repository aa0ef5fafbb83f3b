// tls.test.mjs - certificates and a password that are in memory: no file and no place in a URL is needed.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import test from 'node:test';
import { Client } from 'holdfast';
import Redlock from 'holdfast/redlock';
import { fresh } from './support.mjs';

const { HF_TEST_TLS_PORT: port, HF_TEST_TLS_FILES: files } = process.env;
const url = `rediss://localhost:${port}`;
const password = 'p@ss:word/%';
const read = (name) => readFileSync(`${files}/${name}`);
const skip = port ? false : 'there is no server that speaks TLS';

test('certificates as Buffers, texts or arrays of them, and a password apart from the URL', { skip }, async () => {
  const [ca, cert, key] = [read('ca.crt'), read('client.crt'), read('client.key')];
  for (const tls of [{ ca, cert, key }, { ca: String(ca), cert: String(cert), key: String(key) }, { ca: [ca, ca], cert, key }]) {
    const client = new Client(url, { tls, password });
    await (await client.acquire(fresh())).release();
    await client.close();
  }
});

test('what is wrong with them has words', { skip }, async () => {
  const [ca, cert, key] = [read('ca.crt'), read('client.crt'), read('client.key')];
  const refused = async (options, code, words) => {
    const client = new Client(url, options);
    await assert.rejects(client.acquire(fresh(), { wait: 0 }), (error) => {
      assert.equal(error.code, code, error.message);
      assert.match(error.message, words);
      return true;
    });
    await client.close();
  };
  await refused({ tls: { ca, cert, key }, password: 'wrong' }, 'HF_DENIED', /password/i);
  await refused({ tls: { ca }, password }, 'HF_CONFIG', /asks for a certificate/);
  await refused({ tls: { ca: read('stranger-ca.crt'), cert, key }, password }, 'HF_CONFIG', /unknown authority/);
  assert.throws(() => new Client(url, { tls: { ca: 7 } }), { code: 'HF_INVALID' });
});

test('redlock: the certificates of an ioredis client are used', { skip }, async () => {
  const tls = { ca: read('ca.crt'), cert: read('client.crt'), key: read('client.key') };
  const redlock = new Redlock([{ options: { host: 'localhost', port: Number(port), password, tls } }]);
  const lock = await redlock.acquire([fresh()], 5000);
  await lock.release();
  await redlock.quit();
});
