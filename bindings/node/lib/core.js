'use strict';
// core.js - the private part of a client: its handle, what it waits for, what it holds.
//
// Ids connect JavaScript with the addon: each acquire has one, which its release uses again, and
// each extend has one. The maps below keep leases strongly, so nothing that is held is ever found
// by the garbage collector: a lease that nobody looks at is still held.
const diagnostics = require('node:diagnostics_channel');
const native = require('./native.js');
const { makeError, translate } = require('./errors.js');
const { Lease } = require('./lease.js');

const DONE = 0, LOST = 1, LOG = 2; // enum addon_event
const LEVELS = { off: 0, error: 1, warn: 2, info: 3, debug: 4 };
// Only Node's own libuv polls descriptors for an addon.
const polls = !process.versions.bun && !process.versions.deno;
const granted = diagnostics.channel('holdfast:granted');
const logged = diagnostics.channel('holdfast:log');

// Cleanup hooks of the addon do not run at process.exit() nor after an uncaught exception; this
// listener does. What signals do is up to the application.
const open = new Set();
process.on('exit', () => {
  for (const core of open) native.closeNow(core.handle);
});

class Core {
  handle; // undefined: not opened yet
  closing = false;
  waits = new Map(); // id -> function (status, text, holder)
  leases = new Map(); // id -> Lease
  jobs = new Set(); // promises of list() and show()
  #url;
  #listener;
  #level;
  #options;
  #heartbeat;
  #lastId = 0;

  /** options: maxStall in ms, and texts ca, cert, key, password. listener: lost(lease, error),
   * log(entry) */
  constructor(url, level, options, listener) {
    this.#url = url;
    this.#level = level;
    this.#options = options;
    this.#listener = listener;
    native.checkUrl(url);
  }

  nextId() {
    return ++this.#lastId;
  }

  /** The addon's client; connects when first needed. */
  open() {
    if (this.closing) throw makeError('CLOSED', 'the client is closed');
    if (this.handle) return this.handle;
    const { maxStall, ca, cert, key, password } = this.#options;
    this.handle = native.open(this.#url, (...event) => this.#hear(...event),
      [maxStall, ca, cert, key, password, polls]);
    open.add(this);
    this.#beat(maxStall);
    this.setLogLevel(this.#level);
    return this.handle;
  }

  /** A timer says that the loop turns. It does not keep the process alive. */
  #beat(maxStall) {
    if (!maxStall) return;
    const beat = () => native.alive(this.handle);
    this.#heartbeat = setInterval(beat, Math.max(1, Math.floor(maxStall / 4))).unref();
  }

  setLogLevel(level) {
    if (!Object.hasOwn(LEVELS, level)) throw makeError('INVALID', `logLevel: no such level: ${level}`);
    this.#level = level;
    if (this.handle) native.setLogLevel(this.handle, LEVELS[level]);
  }

  /** Settles with the outcome of a call that was begun under this id. */
  outcome(id) {
    return new Promise((resolve, reject) => {
      this.waits.set(id, (status, text, holder) =>
        (status ? reject(makeError(status, text, holder)) : resolve()));
    });
  }

  /** Returns a Lease, or a promise of one. */
  acquire(name, request, signal) {
    const id = this.nextId();
    const [handle, token] = native.acquire(this.open(), id, request);
    return token ? this.#hold(id, handle, name) : this.#wait(id, handle, name, signal);
  }

  #hold(id, handle, name) {
    let lease;
    try {
      lease = new Lease(this, id, handle, name, native.token(handle));
    } catch (error) {
      native.free(handle);
      throw error;
    }
    this.leases.set(id, lease);
    if (granted.hasSubscribers) granted.publish({ lease });
    return lease;
  }

  /** An abort rejects at once. If the grant came first, the lease is released as soon as the
   * library reports it. */
  #wait(id, handle, name, signal) {
    return new Promise((resolve, reject) => {
      let abandoned = false;
      const abort = () => {
        abandoned = true;
        native.cancel(handle);
        reject(signal.reason);
      };
      signal?.addEventListener('abort', abort, { once: true });
      this.waits.set(id, (status, text, holder) => {
        signal?.removeEventListener('abort', abort);
        if (abandoned || status) {
          native.free(handle);
          reject(makeError(status, text, holder));
          return;
        }
        try {
          resolve(this.#hold(id, handle, name));
        } catch (error) {
          reject(translate(error));
        }
      });
    });
  }

  /** A call that waits for a server; close() waits for it. */
  async job(promise) {
    this.jobs.add(promise);
    try {
      return await promise;
    } catch (error) {
      throw translate(error);
    } finally {
      this.jobs.delete(promise);
    }
  }

  lost(lease, error) {
    this.#listener.lost(lease, error);
  }

  #hear(kind, id, status, detail, holder) {
    if (kind === DONE) {
      const settle = this.waits.get(id);
      this.waits.delete(id);
      settle?.(status, detail, holder);
    } else if (kind === LOST) {
      this.leases.get(id)?.lose(makeError('LOST', detail));
    } else if (kind === LOG) {
      const entry = { ...detail, code: status && 'HF_' + status };
      if (logged.hasSubscribers) logged.publish(entry);
      this.#listener.log(entry);
    }
  }

  /** Releases what is held and ends every wait. Rejects if the servers did not answer in time; if
   * the code is HF_TIMEOUT, the client is not closed and close() may be called again. */
  async close(timeout) {
    this.closing = true;
    if (!this.handle) return;
    await Promise.allSettled([...this.jobs]);
    try {
      await native.close(this.handle, timeout);
    } catch (error) {
      if (error.code === 'TIMEOUT') throw translate(error);
      this.#end();
      throw translate(error);
    }
    this.#end();
  }

  #end() {
    open.delete(this);
    clearInterval(this.#heartbeat);
    for (const settle of this.waits.values()) settle('CLOSED', 'the client was closed meanwhile');
    this.waits.clear();
    for (const lease of this.leases.values()) lease.closed();
    this.leases.clear();
  }
}

module.exports = { Core, LEVELS };
