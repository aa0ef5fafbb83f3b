// simple_redis_mutex.mjs - npm simple-redis-mutex, on the client that it needs (npm redis). Waiters
// are notified through Pub/Sub that the lock is free, and then race for it. They also poll every 10
// s, or every retryMs.
import { library, work } from './worker.mjs';

const { lock } = library('simple-redis-mutex');

work(async ({ urls, ttlMs, retryMs }) => {
    const redis = await library('redis').createClient({ url: urls[0] }).on('error', () => {}).connect();
    const options = { timeout: ttlMs, ...(retryMs === undefined ? {} : { pollingInterval: retryMs }) };
    return {
        sends: ['set', 'incr', 'eval', 'evalsha'],
        acquire: (key) => lock(redis, key, options),
        release: (giveBack) => giveBack(),
    };
});
