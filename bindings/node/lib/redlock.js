'use strict';
// redlock.js - in the place of node-redlock 5, and of the names of 4.x, on the same keys: processes with
// either library exclude each other, so a fleet moves host by host. docs/from-redlock.md has what differs.
const { EventEmitter } = require('node:events');
const { Client } = require('./client.js');
const { BusyError } = require('./errors.js');
const { asyncDispose } = require('./lease.js');
const { urlOf, certificatesOf } = require('./redlock_url.js');

const DEFAULTS = {
  driftFactor: 0.01,
  retryCount: 10,
  retryDelay: 200,
  retryJitter: 100,
  automaticExtensionThreshold: 500,
};
const TTL_MIN = 100; // shortest ttl of the library on servers, in ms
const TTL_MAX = 24 * 3600 * 1000;

/** A call that failed. `attempts` has one entry: a wait is one place in a queue, not several tries. */
class ExecutionError extends Error {
  constructor(message, attempts = [], options) {
    super(message, options);
    this.attempts = attempts;
  }

  get name() {
    return this.constructor.name;
  }
}

/** Others hold it. */
class ResourceLockedError extends ExecutionError {}

class Lock {
  #lease;

  constructor(redlock, lease, resources, attempts, expiration) {
    this.redlock = redlock;
    this.#lease = lease;
    this.resources = resources;
    this.attempts = attempts;
    this.expiration = expiration;
  }

  /** The tokens as text. Unlike node-redlock's random value, this text is not what the server
   * stores. */
  get value() {
    return this.leases.map((lease) => lease.token).join(' ');
  }

  /** The token of the first resource. It rises with every grant, for a store that can refuse an
   * older one. */
  get token() {
    return this.leases[0].token;
  }

  get leases() {
    return this.#lease.all ?? [this.#lease];
  }

  get lease() {
    return this.#lease;
  }

  get resource() {
    return this.resources; // 4.x
  }

  async release() {
    return this.redlock.release(this);
  }

  extend(duration, callback) {
    return settle(this.redlock.extend(this, duration), callback);
  }

  unlock(callback) {
    return settle(this.redlock.release(this).then(() => undefined), callback); // 4.x
  }

  async [asyncDispose]() {
    if (this.expiration > Date.now()) await this.release();
  }
}

/** Calls the callback of 4.x, if one is given, besides returning the promise. */
function settle(promise, callback) {
  if (typeof callback !== 'function') return promise;
  promise.then((value) => callback(null, value), (error) => callback(error));
  return promise.catch(() => {});
}

function checkDuration(duration) {
  if (!Number.isInteger(duration)) throw new TypeError(`duration: ${duration} is not a whole number of milliseconds`);
  if (duration <= 0) throw new RangeError(`duration: ${duration} ms is not positive`);
}

class Redlock extends EventEmitter {
  #holdfast;

  /** settings: as in node-redlock; `url` names the place instead of the clients, `holdfast` has settings of
   * the library, such as { max_ttl: '30s' }. Scripts are ignored. */
  constructor(clients, settings = {}) {
    super();
    this.clients = new Set(clients ?? []);
    if (this.clients.size === 0 && !settings.url)
      throw new Error('Redlock needs at least one client, or a url in its settings');
    const { url, holdfast, ...rest } = settings;
    this.settings = { ...DEFAULTS };
    for (const [name, value] of Object.entries(rest)) if (typeof value === 'number') this.settings[name] = value;
    const drift = Math.min(200000, Math.round(this.settings.driftFactor * 1e6));
    const tls = url ? undefined : certificatesOf([...this.clients]);
    this.#holdfast = new Client(url ?? urlOf([...this.clients], { drift, ...holdfast }), { tls });
    this.#holdfast.on('log', (entry) => this.#report(new Error(`${entry.name}: ${entry.event}: ${entry.text}`)));
  }

  /** The client of Holdfast underneath: semaphores, read-write locks, list(). */
  get holdfast() {
    return this.#holdfast;
  }

  /** Ends the waits, releases what is held, and quits the clients that were given. */
  async quit() {
    await this.#holdfast.close();
    await Promise.all([...this.clients].map((client) => client.quit?.()));
  }

  async acquire(resources, duration, settings) {
    checkDuration(duration);
    return this.#take(resources, duration, { ...this.settings, ...settings }, false);
  }

  async release(lock) {
    lock.expiration = 0;
    try {
      await lock.lease.release();
    } catch (error) {
      throw this.#failure(error, `${lock.resources.join(', ')}: could not be released`);
    }
    return { attempts: [this.#attempt()] };
  }

  /** A new Lock on the same hold, which is good for at least `duration` from now; never shorter. */
  async extend(existing, duration) {
    checkDuration(duration);
    if (existing.expiration < Date.now()) throw new ExecutionError(`${existing.resources.join(', ')}: the lock has expired`);
    const begun = Date.now();
    try {
      await existing.lease.extend(Math.min(Math.max(duration, TTL_MIN), this.#longest()));
    } catch (error) {
      throw this.#failure(error, `${existing.resources.join(', ')}: could not be extended`);
    }
    existing.expiration = 0;
    return new Lock(this, existing.lease, existing.resources, [this.#attempt()], this.#expiration(begun, duration));
  }

  /** Runs routine(signal) under the lock, which the library renews. The signal has the loss in `error`. */
  async using(resources, duration, settings, routine) {
    if (typeof settings === 'function') [settings, routine] = [undefined, settings];
    checkDuration(duration);
    const all = { ...this.settings, ...settings };
    if (all.automaticExtensionThreshold > duration - 100)
      throw new Error('automaticExtensionThreshold must be at least 100 ms below the duration');
    const lock = await this.#take(resources, duration, all, true);
    const { signal } = lock.lease;
    Object.defineProperty(signal, 'error', { get: () => (signal.aborted ? this.#failure(signal.reason) : undefined) });
    try {
      return await routine(signal, lock);
    } finally {
      lock.expiration = 0;
      await lock.lease[asyncDispose]().catch((error) => this.#report(error));
    }
  }

  // ---- The names of 4.x ----

  lock(resource, ttl, callback) {
    return settle(this.acquire([].concat(resource), ttl), callback);
  }

  unlock(lock, callback) {
    return lock.unlock(callback);
  }

  // ---- Inside ----

  async #take(resources, duration, settings, renew) {
    const begun = Date.now();
    const options = { ...this.#times(duration, renew), wait: waitOf(settings) };
    try {
      // One name is asked for alone: the way for several costs an array more.
      const lease = await this.#holdfast.acquire(resources.length === 1 ? resources[0] : [...resources], options);
      return new Lock(this, lease, [...resources], [this.#attempt()], this.#expiration(begun, duration));
    } catch (error) {
      throw this.#failure(error, `${resources.join(', ')}: could not be locked`);
    }
  }

  /** A duration above what the engine allows becomes a shorter ttl that is renewed until the
   * duration is over. */
  #times(duration, renew) {
    const ttl = Math.max(duration, TTL_MIN);
    if (ttl <= this.#longest()) return { ttl, renew };
    return { ttl: this.#longest(), renew: true, ...(renew ? {} : { maxHold: Math.min(duration, 31622400000) }) };
  }

  #longest() {
    return this.clients.size > 1 ? this.#holdfast.setting('max_ttl').value : TTL_MAX;
  }

  #expiration(begun, duration) {
    return begun + duration - Math.round(this.settings.driftFactor * duration) - 2;
  }

  async #attempt(error) {
    const size = Math.max(1, this.clients.size);
    return {
      membershipSize: size,
      quorumSize: Math.floor(size / 2) + 1,
      votesFor: new Set(error ? [] : this.clients),
      votesAgainst: new Map(error ? [...this.clients].map((client) => [client, error]) : []),
    };
  }

  #failure(error, what) {
    if (error instanceof ExecutionError || typeof error?.code !== 'string') return error;
    const kind = error instanceof BusyError ? ResourceLockedError : ExecutionError;
    const text = what ? `${what}: ${error.message}` : error.message;
    const failure = new kind(text, [this.#attempt(error)], { cause: error });
    if (kind === ExecutionError) this.#report(failure);
    return failure;
  }

  /** An event `error` that nobody listens to would end the process. */
  #report(error) {
    if (this.listenerCount('error')) this.emit('error', error);
    if (this.listenerCount('clientError')) this.emit('clientError', error); // 4.x
  }
}

/** How long a wait lasts: node-redlock counts tries, Holdfast measures time. */
function waitOf({ retryCount, retryDelay, retryJitter }) {
  if (retryCount < 0) return Infinity;
  return Math.round(retryCount * (retryDelay + retryJitter / 2));
}

// require() is the class itself, as in 4.x, and has what 5 exports.
Object.assign(Redlock, { default: Redlock, Redlock, Lock, ExecutionError, ResourceLockedError, LockError: ExecutionError });
Object.defineProperty(Redlock, '__esModule', { value: true });
module.exports = Redlock;
