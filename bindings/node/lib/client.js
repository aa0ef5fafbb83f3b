'use strict';
// client.js - Client: where locks are, and how they are asked for. Times are milliseconds, or texts
// with a unit ('30s').
const { EventEmitter } = require('node:events');
const diagnostics = require('node:diagnostics_channel');
const native = require('./native.js');
const { Core } = require('./core.js');
const { BusyError, HoldfastError, LostError, translate } = require('./errors.js');
const { Leases, asyncDispose } = require('./lease.js');
const { acquireAll } = require('./several.js');
const { FOREVER, WAIT_DEFAULT, milliseconds, makeRequest } = require('./request.js');

const tracing = diagnostics.tracingChannel?.('holdfast:acquire');

function isTraced() {
  return tracing?.hasSubscribers ?? tracing?.start.hasSubscribers;
}

/** Certificates as Node has them: a text, bytes, or several of them. */
function pem(value, name) {
  if (value === undefined) return undefined;
  if (Array.isArray(value)) return value.map((one) => pem(one, name)).join('\n');
  if (typeof value === 'string' || Buffer.isBuffer(value)) return String(value);
  throw new HoldfastError('HF_INVALID', `tls.${name}: neither a string nor a Buffer`);
}

class Client extends EventEmitter {
  #core;
  #defaultWait;
  #closed;

  /** Without url: $HOLDFAST_URL, else this machine. A bad URL throws here; the client connects when
   * it is first used. */
  constructor(url, { logLevel = 'warn', maxStall, tls = {}, password } = {}) {
    super();
    const stall = milliseconds(maxStall, 'maxStall');
    if (stall < 0) throw new HoldfastError('HF_INVALID', 'maxStall: must not be Infinity');
    const texts = { ca: pem(tls.ca, 'ca'), cert: pem(tls.cert, 'cert'), key: pem(tls.key, 'key') };
    try {
      this.#core = new Core(url, logLevel, { maxStall: stall, password, ...texts }, {
        lost: (lease, error) => this.emit('lost', lease, error),
        log: (entry) => this.emit('log', entry),
      });
      this.#core.setLogLevel(logLevel);
    } catch (error) {
      throw translate(error);
    }
  }

  /** Waits for its turn: for ever, unless `wait`, the URL or the environment say how long. With an
   * array of names: all or none, as Leases. */
  acquire(name, options = {}) {
    if (!isTraced()) return this.#acquire(name, options);
    return tracing.tracePromise(() => this.#acquire(name, options), { client: this, name, options });
  }

  /** As acquire(), but does not wait; null if others hold the lock. */
  async tryAcquire(name, options = {}) {
    try {
      return await this.acquire(name, { ...options, wait: 0 });
    } catch (error) {
      if (error instanceof BusyError) return null;
      throw error;
    }
  }

  /** Runs work(signal, lease) under the lock. What the work throws comes through as it is. If the
   * lease was lost meanwhile, rejects with a LostError that has the result beside it. */
  async using(name, options, work) {
    if (typeof options === 'function') [options, work] = [{}, options];
    if (typeof work !== 'function') throw new HoldfastError('HF_INVALID', 'work: not a function');
    const lease = await this.acquire(name, options);
    let result;
    try {
      result = await work(lease.signal, lease);
    } catch (error) {
      await lease[asyncDispose]().catch(() => {});
      throw error;
    }
    try {
      await lease[asyncDispose]();
    } catch (error) {
      // A release that nobody answered ends by itself, and the work was done under the lock.
      if (error instanceof LostError) throw Object.assign(error, { result });
    }
    return result;
  }

  /** Every holder and waiter of the names that begin with the prefix. */
  async list(prefix = '') {
    return this.#rows(prefix, false);
  }

  /** The holders and waiters of one name. */
  async show(name) {
    return this.#rows(name, true);
  }

  /** What happened since the client was opened. */
  counters() {
    return this.#call(() => native.counters(this.#core.open()));
  }

  /** The value in force of a setting, and its source: 'default', 'environment', 'url' or 'options'. */
  setting(name) {
    const [value, source] = this.#call(() => native.setting(this.#core.open(), name));
    return { value, source };
  }

  set logLevel(level) {
    this.#core.setLogLevel(level);
  }

  get closed() {
    return this.#core.closing;
  }

  /** Releases what is held, ends every wait with HF_CLOSED. */
  async close({ timeout = 1000 } = {}) {
    const ms = milliseconds(timeout, 'timeout');
    this.#closed ??= this.#core.close(ms).catch((error) => {
      if (error.code === 'HF_TIMEOUT') this.#closed = undefined;
      throw error;
    });
    return this.#closed;
  }

  async [asyncDispose]() {
    await this.close();
  }

  #call(action) {
    try {
      return action();
    } catch (error) {
      throw translate(error);
    }
  }

  async #rows(text, exact) {
    return this.#core.job(this.#call(() => native.list(this.#core.open(), text, exact)));
  }

  /** acquire() waits for ever, unless the URL or the environment say how long. */
  #waitOf(options) {
    const wait = milliseconds(options.wait, 'wait');
    if (wait !== undefined) return wait;
    this.#defaultWait ??= this.setting('wait').source === 'default' ? FOREVER : WAIT_DEFAULT;
    return this.#defaultWait;
  }

  /** Most calls come this way. It makes only one promise besides that of the wait, because each
   * promise costs time. */
  async #acquire(name, given) {
    const options = given ?? {};
    if (typeof options !== 'object')
      throw new HoldfastError('HF_INVALID', `options: ${typeof options} is not an object`);
    const { signal } = options;
    signal?.throwIfAborted();
    const wait = this.#waitOf(options);
    if (Array.isArray(name)) return this.#acquireAll(name, options, wait);
    try {
      return await this.#core.acquire(name, makeRequest(name, options, wait), signal);
    } catch (error) {
      throw translate(error);
    }
  }

  #acquireAll(names, options, wait) {
    const bound = wait === WAIT_DEFAULT ? this.setting('wait').value : wait;
    return acquireAll(names, bound, options.signal, (name, left, signal) =>
      this.#acquire(name, { ...options, wait: left === FOREVER ? Infinity : left, signal }));
  }
}

module.exports = { Client };
