// redlock5.mjs - npm redlock 5 (beta): 10 tries, 200 ms and up to 100 ms by chance between them, unless told otherwise.
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
