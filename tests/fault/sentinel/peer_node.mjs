// peer_node.mjs - a holder or a waiter of failover_peers, on a primary found by ioredis: the bare lock (SET NX PX, asked
// for every 50 ms), or npm's redlock.
//
//     peer_node.mjs ioredis|redlock hold|wait PORT,PORT,PORT PASSWORD TTL_MS
//
// It says what happens, with the time of the monotonic clock: asks, got, lost, end.
import { randomUUID } from 'node:crypto';
import { createRequire } from 'node:module';
import { setTimeout as pause } from 'node:timers/promises';

const require = createRequire(process.env.HF_PEER_NODE + '/package.json');
const Redis = require('ioredis');
const [, , library, mode, ports, password, ttlText] = process.argv;
const ttl = Number(ttlText), key = `peer:${library}`;
const redis = new Redis({
    sentinels: ports.split(',').map((port) => ({ host: '127.0.0.1', port: Number(port) })),
    name: 'mymaster', password, maxRetriesPerRequest: 1,
});
redis.on('error', () => {});
const say = (what) => console.log(what, String(process.hrtime.bigint()));

const scripts = {
    give: `if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return 0`,
    extend: `if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('pexpire', KEYS[1], ARGV[2]) end return 0`,
};

// extend: true, false (it is another's or nobody's), or an error of the connection.
const bare = {
    async take() {
        const value = randomUUID();
        for (;;) {
            const answer = await redis.set(key, value, 'PX', ttl, 'NX').catch(() => null);
            if (answer) return value;
            await pause(50);
        }
    },
    extend: async (value) => (await redis.eval(scripts.extend, 1, key, value, ttl)) === 1,
    give: (value) => redis.eval(scripts.give, 1, key, value),
};

function redlock() {
    const Lock = require('redlock').default || require('redlock');
    const lock = new Lock([redis], { retryCount: 100000, retryDelay: 100, retryJitter: 50 });
    lock.on('error', () => {});
    return {
        async take() {
            for (;;) {
                const held = await (lock.lock ? lock.lock(key, ttl) : lock.acquire([key], ttl)).catch(() => null);
                if (held) return held;
                await pause(50);
            }
        },
        // It says the same for a lock that is lost and for a server that is away.
        extend: (held) => held.extend(ttl).then(() => true),
        give: (held) => (held.unlock ? held.unlock() : held.release()),
    };
}

const lock = library === 'redlock' ? redlock() : bare;
let released = false;
process.stdin.on('data', () => (released = true)).on('end', () => (released = true));

// Until a line comes; extends the lock every third of its ttl. False: it was lost.
async function hold(held) {
    let expires = Date.now() + ttl;
    for (let next = Date.now() + ttl / 3; !released; await pause(10)) {
        if (Date.now() < next) continue;
        next = Date.now() + ttl / 3;
        // redlock 4 tries to extend as often as it tries to lock: not beyond the end of the lock
        const answer = await Promise.race([lock.extend(held).catch(() => null), pause(Math.max(1, expires - Date.now()))]);
        if (answer) expires = Date.now() + ttl;
        if (answer === false || Date.now() >= expires) return false;
    }
    return true;
}

say('asks');
const held = await lock.take();
say('got');
if (mode === 'wait') await pause(50);
else if (!(await hold(held))) say('lost');
say('end');
await Promise.race([lock.give(held).catch(() => {}), pause(1000)]);
process.exit(0);
