// http_ioredis.mjs - what people write instead of a service: locks over HTTP in a few lines of Node
// and ioredis. SET NX PX and a compare-and-delete; no token, no queue, no log. Prints its port.
import { createServer } from 'node:http';
import { randomUUID } from 'node:crypto';
import Redis from 'ioredis';

const redis = new Redis(process.argv[2]);
redis.defineCommand('giveBack', {
    numberOfKeys: 1,
    lua: `if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return 0`,
});

async function answer(request, response, body) {
    const [, name, id] = request.url.split('/');
    if (request.method === 'DELETE') return response.writeHead((await redis.giveBack(name, id)) ? 204 : 410).end();
    const value = randomUUID();
    const taken = await redis.set(name, value, 'PX', JSON.parse(body).ttlMs, 'NX');
    response.writeHead(taken ? 201 : 409, taken ? { Location: `/${name}/${value}` } : {}).end();
}

createServer((request, response) => {
    let body = '';
    request.on('data', chunk => (body += chunk)).on('end', () => answer(request, response, body));
}).listen(0, '127.0.0.1', function () { console.log(this.address().port); });
