// etcd_gateway.mjs - etcd's own lock through its HTTP gateway. Each worker has a lease; waiters of
// /v3/lock/lock queue in the server. Connections are kept open.
import { Agent, request } from 'node:http';
import { work } from './worker.mjs';

const agent = new Agent({ keepAlive: true });
const base64 = (text) => Buffer.from(text).toString('base64');

function post(url, path, body) {
    return new Promise((resolve, reject) => {
        const sent = request(new URL(path, url), { method: 'POST', agent }, (reply) => {
            let text = '';
            reply.on('data', (part) => (text += part));
            reply.on('end', () => (reply.statusCode === 200 ? resolve(JSON.parse(text)) : reject(new Error(text))));
        });
        sent.on('error', reject).end(JSON.stringify(body));
    });
}

work(({ urls, ttlMs }) => {
    const leases = [];
    const leaseOf = (worker) => (leases[worker] ??= post(urls[0], '/v3/lease/grant', { TTL: Math.ceil(ttlMs / 1000) }));
    return {
        async acquire(key, worker) {
            const { ID } = await leaseOf(worker);
            return post(urls[0], '/v3/lock/lock', { name: base64(key), lease: ID });
        },
        release: ({ key }) => post(urls[0], '/v3/lock/unlock', { key }),
    };
});
