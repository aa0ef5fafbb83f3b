// index.d.ts - the types of the package. CMake and `npm pack` copy them to index.d.mts, because
// TypeScript wants one file for each kind of module.
import { EventEmitter } from 'node:events';

/** Milliseconds, or a text with a unit: '500ms', '30s', '2m'. */
export type Duration = number | string;
export type Kind = 'exclusive' | 'semaphore' | 'read' | 'write';

export interface AcquireOptions {
  /** How soon others get in if this process dies. Default: 30 s, unless URL or environment say otherwise. */
  ttl?: Duration;
  /** How long to wait for the turn; 0: do not wait, Infinity: for ever. Default: for ever, unless URL or environment say otherwise. */
  wait?: Duration;
  /** Ends the wait; the promise rejects with its reason. */
  signal?: AbortSignal;
  /** Default: 'semaphore' if there is a capacity, else 'exclusive'. */
  kind?: Kind;
  /** Capacity of a semaphore. */
  capacity?: number;
  /** Units of the semaphore's capacity that are asked for; default 1. */
  units?: number;
  /** Owner of the hold, for reentrancy: the same owner enters again at once. At most 64 bytes. */
  owner?: string;
  /** Shown to others, in list() for example. */
  label?: string;
  correlationId?: string;
  /** Renewal ends after this time. Default: never. */
  maxHold?: Duration;
  /** false: the lease ends with its ttl unless extend() is called. Default: true. */
  renew?: boolean;
  /** May pass waiters if the lock is free at this moment. */
  barging?: boolean;
  /** Needs no fencing token; cheaper on Redis. Its token is 1. */
  tokenless?: boolean;
}

export interface Row {
  name: string;
  role: 'holder' | 'waiter';
  kind: Kind;
  token: number;
  leftMs: number;
  sinceMs: number;
  ttlMs: number;
  capacity: number;
  units: number;
  depth: number;
  place: number;
  pid: number;
  host: string;
  label: string;
  foreign: boolean;
}

export interface LogEntry {
  level: 'error' | 'warn' | 'info' | 'debug';
  event: string;
  name: string;
  correlationId: string;
  text: string;
  token: number;
  heldMs: number;
  waitedMs: number;
  code?: string;
}

export interface Counters {
  asked: number;
  granted: number;
  queued: number;
  busy: number;
  timedOut: number;
  cancelled: number;
  failed: number;
  extended: number;
  released: number;
  lost: number;
}

export class HoldfastError extends Error {
  constructor(code: string, message: string, options?: ErrorOptions);
  /** The library's status with a prefix: 'HF_BUSY', 'HF_LOST', 'HF_INVALID' and so on. */
  readonly code: string;
}
/** HF_BUSY, HF_TIMEOUT: others hold it. */
export class BusyError extends HoldfastError {
  /** Who holds it, as far as the engine told; the pid is 0 if only the time is known. */
  readonly holder?: Row;
  /** Milliseconds until that hold ends unless it is renewed. */
  readonly retryAfter?: number;
}
/** HF_LOST, HF_NOT_HELD: the lease was held and is not any more. */
export class LostError extends HoldfastError {
  /** What the work of using() returned, if it ended in spite of the loss. */
  result?: unknown;
}
/** HF_UNAVAILABLE, HF_NO_QUORUM, HF_IN_DOUBT, HF_NOT_REPLICATED. */
export class UnavailableError extends HoldfastError {}

export class Lease implements AsyncDisposable {
  private constructor();
  readonly name: string;
  /** Rises with every grant of the name. Pass it to every store that can refuse an older one. */
  readonly token: number;
  /** Aborted with a LostError when the lease is lost. */
  readonly signal: AbortSignal;
  /** Milliseconds that are certainly left, by the clock now. */
  readonly remaining: number;
  readonly held: boolean;
  /** Makes the lease good for at least ttl from now; without ttl, its own. Never shortens. */
  extend(ttl?: Duration): Promise<void>;
  /** Releases; rejects with a LostError if the lease had ended before. */
  release(): Promise<void>;
  /** From reader to writer, with a new token; rejects with HF_BUSY if there are other readers. */
  upgrade(): Promise<void>;
  downgrade(): Promise<void>;
  toJSON(): { name: string; token: number; remaining: number };
  [Symbol.asyncDispose](): Promise<void>;
}

/** Several leases that were taken together: if one is lost, the others are given up. */
export class Leases implements AsyncDisposable, Iterable<Lease> {
  private constructor();
  readonly all: Lease[];
  readonly tokens: Record<string, number>;
  readonly signal: AbortSignal;
  readonly remaining: number;
  readonly held: boolean;
  extend(ttl?: Duration): Promise<void>;
  release(): Promise<void>;
  [Symbol.iterator](): Iterator<Lease>;
  [Symbol.asyncDispose](): Promise<void>;
}

export interface ClientOptions {
  /** Which log entries are emitted; default 'warn'. */
  logLevel?: 'off' | 'error' | 'warn' | 'info' | 'debug';
  /** If the event loop hangs for this long, leases are no longer renewed. Default: they always are. */
  maxStall?: Duration;
  /** Certificates as PEM, instead of files named in the URL (ca=, cert=, key=). */
  tls?: { ca?: Pem; cert?: Pem; key?: Pem };
  /** Takes the place of a password in the URL. */
  password?: string;
}
export type Pem = string | Buffer | Array<string | Buffer>;

export class Client extends EventEmitter implements AsyncDisposable {
  /** Without url: $HOLDFAST_URL, else this machine. A bad URL throws here. */
  constructor(url?: string, options?: ClientOptions);
  /** Waits for its turn. */
  acquire(name: string, options?: AcquireOptions): Promise<Lease>;
  /** Several names, all or none, without deadlock. */
  acquire(names: readonly string[], options?: AcquireOptions): Promise<Leases>;
  /** Does not wait; null if others hold it. */
  tryAcquire(name: string, options?: Omit<AcquireOptions, 'wait'>): Promise<Lease | null>;
  tryAcquire(names: readonly string[], options?: Omit<AcquireOptions, 'wait'>): Promise<Leases | null>;
  /** Runs the work under the lock and returns its result. The signal is that of the lease. */
  using<T>(name: string, work: (signal: AbortSignal, lease: Lease) => Promise<T> | T): Promise<T>;
  using<T>(name: string, options: AcquireOptions,
    work: (signal: AbortSignal, lease: Lease) => Promise<T> | T): Promise<T>;
  using<T>(names: readonly string[], options: AcquireOptions,
    work: (signal: AbortSignal, leases: Leases) => Promise<T> | T): Promise<T>;
  /** Every holder and waiter of the names that begin with the prefix. */
  list(prefix?: string): Promise<Row[]>;
  /** The holders and waiters of one name. */
  show(name: string): Promise<Row[]>;
  counters(): Counters;
  setting(name: string): { value: number; source: 'default' | 'environment' | 'url' | 'options' };
  set logLevel(level: NonNullable<ClientOptions['logLevel']>);
  readonly closed: boolean;
  /** Releases what is held, ends every wait with HF_CLOSED. Default timeout: one second. */
  close(options?: { timeout?: Duration }): Promise<void>;
  [Symbol.asyncDispose](): Promise<void>;

  on(event: 'lost', listener: (lease: Lease, error: LostError) => void): this;
  on(event: 'log', listener: (entry: LogEntry) => void): this;
  once(event: 'lost', listener: (lease: Lease, error: LostError) => void): this;
  once(event: 'log', listener: (entry: LogEntry) => void): this;
}

export const version: string;
export const engines: string[];
