// pairs.mjs - pairs of acquire and release, between two marks in the list of system calls that strace makes.
//
//     strace -f node pairs.mjs URL PAIRS IN_FLIGHT
import { existsSync } from 'node:fs';
import { Client } from 'holdfast';

const [url, pairs, inFlight] = [process.argv[2], Number(process.argv[3]), Number(process.argv[4])];
const client = new Client(url);
const some = (count) => Promise.all(Array.from({ length: inFlight }, async (_, i) => {
  for (let n = 0; n < count / inFlight; n++) await (await client.acquire(`pairs/${i}`)).release();
}));
await some(200 * inFlight); // compiled, and connected
existsSync('/BEGIN-OF-PAIRS');
await some(pairs);
existsSync('/END-OF-PAIRS');
await client.close();
