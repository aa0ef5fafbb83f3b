// booking.ts - many customers want the same seats: each seat is sold once, and a late writer is refused by its token.
import { Client } from 'holdfast';

interface Seat { owner: string | null; token: number }
const seats = new Map<string, Seat>();

/** The store refuses a token that is older than one it has seen: a holder that was stopped cannot overwrite. */
function write(seat: string, owner: string, token: number): void {
  const now = seats.get(seat) ?? { owner: null, token: 0 };
  if (token < now.token) throw new Error(`${seat}: token ${token} is older than ${now.token}`);
  seats.set(seat, { owner, token });
}

async function book(locks: Client, seat: string, customer: string): Promise<boolean> {
  return locks.using(`seat:${seat}`, { ttl: '10s', wait: '20s' }, async (signal, lease) => {
    if (seats.get(seat)?.owner) return false;
    await new Promise((resolve) => setTimeout(resolve, 2)); // the payment
    signal.throwIfAborted();
    write(seat, customer, lease.token);
    return true;
  });
}

async function main(): Promise<void> {
  const locks = new Client();
  const wishes = Array.from({ length: 60 }, (_, i) => book(locks, `row-${i % 6}`, `customer-${i}`));
  const sold = (await Promise.all(wishes)).filter(Boolean).length;
  await locks.close();
  if (sold !== 6) throw new Error(`${sold} of 6 seats were sold`);
  console.log('booking: 60 customers, 6 seats, each sold once');
}

void main();
