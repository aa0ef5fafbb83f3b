// ioredis.mjs - the bare lock in Node: SET NX PX, and compare-and-delete by a script. A waiter asks
// again after retryMs (default 5; ioredis itself has no lock and so no default).
import { randomUUID } from 'node:crypto';
import { setTimeout as pause } from 'node:timers/promises';
import { ioredisClients, work } from './worker.mjs';

const giveBack = `if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return 0`;

work(({ urls, ttlMs, retryMs = 5 }) => {
    const [redis] = ioredisClients(urls);
    redis.defineCommand('giveBack', { numberOfKeys: 1, lua: giveBack });
    return {
        sends: ['set', 'eval', 'evalsha'],
        async acquire(key) {
            const value = randomUUID();
            while (!(await redis.set(key, value, 'PX', ttlMs, 'NX'))) await pause(retryMs);
            return { key, value };
        },
        release: ({ key, value }) => redis.giveBack(key, value),
    };
});
