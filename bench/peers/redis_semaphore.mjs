// redis_semaphore.mjs - npm redis-semaphore: a Mutex on one server, RedlockMutex on several, a
// Semaphore if there is a capacity. Polls every 10 ms (or every retryMs) and gives up after 10 s.
import { ioredisClients, library, untilHeld, work } from './worker.mjs';

const { Mutex, RedlockMutex, Semaphore, TimeoutError } = library('redis-semaphore');

work(({ urls, ttlMs, retryMs, capacity }) => {
    const clients = ioredisClients(urls);
    const options = { lockTimeout: ttlMs, ...(retryMs === undefined ? {} : { retryInterval: retryMs }) };
    const lockOf = (key) => {
        if (capacity > 1) return new Semaphore(clients[0], key, capacity, options);
        return clients.length > 1 ? new RedlockMutex(clients, key, options) : new Mutex(clients[0], key, options);
    };
    return {
        sends: ['set', 'eval', 'evalsha', 'zrem'],
        async acquire(key) {
            const lock = lockOf(key);
            await untilHeld(() => lock.acquire(), (error) => error instanceof TimeoutError);
            return lock;
        },
        release: (lock) => lock.release(),
    };
});
