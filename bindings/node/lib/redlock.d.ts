// redlock.d.ts - the types of holdfast/redlock for require(): the module is the class, with the others inside it.
import { EventEmitter } from 'node:events';
import { Client, Lease, Leases } from './index.js';

declare class Redlock extends EventEmitter {
  constructor(clients: Iterable<unknown>, settings?: Redlock.Options);
  readonly clients: Set<unknown>;
  readonly settings: Redlock.Settings;
  readonly holdfast: Client;
  acquire(resources: string[], duration: number, settings?: Partial<Redlock.Settings>): Promise<Redlock.Lock>;
  release(lock: Redlock.Lock, settings?: Partial<Redlock.Settings>): Promise<Redlock.ExecutionResult>;
  extend(existing: Redlock.Lock, duration: number, settings?: Partial<Redlock.Settings>): Promise<Redlock.Lock>;
  using<T>(resources: string[], duration: number, routine: (signal: Redlock.RedlockAbortSignal, lock: Redlock.Lock) => Promise<T>): Promise<T>;
  using<T>(resources: string[], duration: number, settings: Partial<Redlock.Settings>,
    routine: (signal: Redlock.RedlockAbortSignal, lock: Redlock.Lock) => Promise<T>): Promise<T>;
  quit(): Promise<void>;
  lock(resource: string | string[], ttl: number, callback?: Redlock.Callback<Redlock.Lock>): Promise<Redlock.Lock>;
  unlock(lock: Redlock.Lock, callback?: Redlock.Callback<void>): Promise<void>;
}
declare namespace Redlock {
  export interface Settings {
    readonly driftFactor: number;
    /** In node-redlock, how often to try again. Here retryCount and retryDelay together say how
     * long to wait. -1: for ever. */
    readonly retryCount: number;
    readonly retryDelay: number;
    readonly retryJitter: number;
    readonly automaticExtensionThreshold: number;
  }
  export interface Options extends Partial<Settings> {
    /** Names the servers instead of the clients. */
    url?: string;
    /** Settings of the library for the URL, such as { max_ttl: '30s' }. */
    holdfast?: Record<string, string | number>;
  }
  export interface ExecutionStats {
    readonly membershipSize: number;
    readonly quorumSize: number;
    readonly votesFor: Set<unknown>;
    readonly votesAgainst: Map<unknown, Error>;
  }
  export interface ExecutionResult {
    attempts: ReadonlyArray<Promise<ExecutionStats>>;
  }
  export type RedlockAbortSignal = AbortSignal & { error?: Error };
  export type Callback<T> = (error: Error | null, value?: T) => void;

  export class ExecutionError extends Error {
    constructor(message: string, attempts?: ReadonlyArray<Promise<ExecutionStats>>, options?: ErrorOptions);
    readonly attempts: ReadonlyArray<Promise<ExecutionStats>>;
  }
  export class ResourceLockedError extends ExecutionError {}
  export class LockError extends ExecutionError {}

  export class Lock implements AsyncDisposable {
    private constructor();
    readonly redlock: Redlock;
    readonly resources: string[];
    readonly resource: string[];
    readonly value: string;
    /** Rises with every grant. */
    readonly token: number;
    readonly lease: Lease | Leases;
    readonly leases: Lease[];
    readonly attempts: ReadonlyArray<Promise<ExecutionStats>>;
    expiration: number;
    release(): Promise<ExecutionResult>;
    extend(duration: number, callback?: Callback<Lock>): Promise<Lock>;
    unlock(callback?: Callback<void>): Promise<void>;
    [Symbol.asyncDispose](): Promise<void>;
  }
  export { Redlock, Redlock as default };
}
export = Redlock;
