// redlock5.mjs - npm redlock 5 (beta): 10 tries with 200 ms plus up to 100 ms of jitter between
// them, or retryMs.
import { ioredisClients, library, untilHeld, work } from './worker.mjs';

const { default: Redlock, ExecutionError } = library('redlock5');

work(({ urls, ttlMs, retryMs }) => {
    const settings = retryMs === undefined ? {} : { retryDelay: retryMs, retryJitter: 0 };
    const redlock = new Redlock(ioredisClients(urls), settings);
    return {
        sends: ['eval', 'evalsha'],
        acquire: (key) => untilHeld(() => redlock.acquire([key], ttlMs), (error) => error instanceof ExecutionError),
        release: (lock) => lock.release().catch(() => {}),
    };
});
