// typed_client.ts - take, renew, see, release and lose a lease with types from the OpenAPI document. Exits with an error if
// an answer is not as expected. Usage: node typed_client.js BASE
import assert from 'node:assert/strict';
import createClient from 'openapi-fetch';
import type { components, paths } from './holdfast.js';

type Lease = components['schemas']['Lease'];
type Problem = components['schemas']['Problem'];

const client = createClient<paths>({ baseUrl: process.argv[2] ?? 'http://localhost:3009' });

async function take(name: string): Promise<Lease> {
  const { data, error } = await client.POST('/v1/locks/{name}/leases', {
    params: { path: { name } }, body: { ttlMs: 20000, waitMs: 0, kind: 'exclusive', label: 'typed' },
  });
  if (!data) throw new Error(error.code + ': ' + error.detail);
  return data;
}

const lease = await take('typed');
const path = { id: lease.leaseId };

const { data: renewed } = await client.PATCH('/v1/leases/{id}', { params: { path }, body: { ttlMs: 30000 } });
assert.ok(renewed && renewed.expiresInMs > 20000 && renewed.token === lease.token);

const { data: lock } = await client.GET('/v1/locks/{name}', { params: { path: { name: 'typed' } } });
assert.ok(lock && !lock.free && lock.holders[0]?.token === lease.token && lock.holders[0].label.startsWith('typed'));

const { error: busy, response } = await client.POST('/v1/leases', { body: { name: 'typed' } });
assert.equal(response.status, 409);
const problem: Problem | undefined = busy;
assert.ok(problem?.code === 'busy' && problem.holder?.token === lease.token && (problem.retryAfterMs ?? 0) > 0);

const { response: released } = await client.DELETE('/v1/leases/{id}', { params: { path } });
assert.equal(released.status, 204);

const { error: lost } = await client.PATCH('/v1/leases/{id}', { params: { path }, body: {} });
assert.equal(lost?.code, 'lost');

const { data: history } = await client.GET('/v1/locks/{name}/history', { params: { path: { name: 'typed' } } });
assert.ok(history?.holds[0]?.outcome === 'released' && history.holds[0].heldMs >= 0);

const { data: list } = await client.GET('/v1/locks', { params: { query: { state: 'held', limit: 10 } } });
assert.ok(list && list.locks.length === 0 && list.cursor === null);
