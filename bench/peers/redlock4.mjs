// redlock4.mjs - npm redlock 4: 10 tries with 200 ms plus up to 100 ms of jitter between them, or
// retryMs.
import { ioredisClients, library, untilHeld, work } from './worker.mjs';

const Redlock = library('redlock4');

work(({ urls, ttlMs, retryMs }) => {
    const settings = retryMs === undefined ? {} : { retryDelay: retryMs, retryJitter: 0 };
    const redlock = new Redlock(ioredisClients(urls), settings);
    redlock.on('clientError', () => {});
    return {
        sends: ['eval', 'evalsha'],
        acquire: (key) => untilHeld(() => redlock.lock(key, ttlMs), (error) => error instanceof Redlock.LockError),
        release: (lock) => lock.unlock().catch(() => {}),
    };
});
