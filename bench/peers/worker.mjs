// worker.mjs - the part that all Node peers share: workers that acquire and release and record
// when, or single requests that `run` sends. Arguments are name=value; worker.py is the same in
// Python.
import { writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { createInterface } from 'node:readline';
import { setTimeout as pause } from 'node:timers/promises';

// The libraries are in the folder in which `run` starts the workers.
export const library = createRequire(process.cwd() + '/');

const words = Object.fromEntries(process.argv.slice(2).map((word) => word.split(/=(.*)/s, 2)));
const number = (name) => Number(words[name]);
const now = () => process.hrtime.bigint();
const say = (...parts) => process.stdout.write(parts.join(' ') + '\n');

// The settings of a peer. retryMs is undefined if the peer shall use its own default.
const wishes = {
    urls: words.url.split(','),
    ttlMs: number('ttl_ms'),
    retryMs: words.retry_ms ? number('retry_ms') : undefined,
    capacity: number('capacity'),
};

// One client of ioredis for each server. Errors of a server are for the peer to handle, not for the
// log.
export function ioredisClients(urls) {
    const { Redis } = library('ioredis');
    return urls.map((url) => new Redis(url).on('error', () => {}));
}

// Libraries that give up after some tries are called again, as a program that needs the lock would
// do.
export async function untilHeld(attempt, gaveUp) {
    for (;;) {
        try {
            return await attempt();
        } catch (error) {
            if (!gaveUp(error)) throw error;
        }
    }
}

// The turns of all workers of this process, five numbers each (see turns.py).
const turns = [];

async function takeTurns(peer, worker, key, end) {
    while (now() < end) {
        const turn = [BigInt(worker), now(), 0n, 0n, 0n];
        const lock = await peer.acquire(key, worker);
        turn[2] = now();
        turns.push(turn);
        if (number('section_ms') > 0) await pause(number('section_ms'));
        turn[3] = now();
        await peer.release(lock);
        turn[4] = now();
    }
}

// Runs all workers until `end`. Does not wait for workers that still wait then.
async function cycle(peer, end) {
    const first = number('first');
    const everyone = Array.from({ length: number('workers') }, (_, i) =>
        takeTurns(peer, first + i, words.keys === 'own' ? `${words.key}-${first + i}` : words.key, end));
    await Promise.race([Promise.all(everyone), pause(Number(end - now()) / 1e6)]);
    writeFileSync(words.records, BigInt64Array.from(turns.flat()));
}

// The commands `ask KEY` and `free KEY` are answered with the times of the call and of its return.
const held = new Map();
async function ask(peer, key, turn) {
    const asked = now();
    held.set(key, await peer.acquire(key, turn));
    say('got', key, asked, now());
}
async function free(peer, key) {
    const called = now();
    await peer.release(held.get(key));
    say('freed', key, called, now());
}

async function begin(open) {
    const lines = createInterface({ input: process.stdin });
    const peer = await open(wishes);
    // The first turn opens connections and loads scripts. It is limited to 1 s, because servers may
    // be down.
    const warm = peer.acquire(`${words.key}-warm-${process.pid}`, 0).then((lock) => peer.release(lock));
    await Promise.race([warm.catch(() => {}), pause(1000)]);
    say('ready', peer.sends?.join(',') ?? '-');
    let asks = 0;
    for await (const line of lines) {
        const [verb, argument] = line.split(' ');
        if (verb === 'ask') guarded(ask(peer, argument, asks++));
        if (verb === 'free') guarded(free(peer, argument));
        if (verb === 'cycle') await cycle(peer, BigInt(argument));
        if (verb === 'cycle' || verb === 'end') break;
    }
    process.exit(0);
}

function guarded(promise) {
    promise.catch((error) => {
        console.error(error);
        process.exit(70);
    });
}

export function work(open) {
    guarded(begin(open));
}
