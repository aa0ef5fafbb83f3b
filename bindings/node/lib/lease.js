'use strict';
// lease.js - what acquire() returns: one lease, or several that were taken together.
const diagnostics = require('node:diagnostics_channel');
const native = require('./native.js');
const { LostError, makeError, translate } = require('./errors.js');
const { milliseconds } = require('./request.js');

const asyncDispose = Symbol.asyncDispose ?? Symbol.for('Symbol.asyncDispose');
const ended = diagnostics.channel('holdfast:ended');
const lost = diagnostics.channel('holdfast:lost');

class Lease {
  #core;
  #id;
  #handle;
  #state = 'held'; // then 'released', 'lost' or 'closed'
  #why; // the error of a lease that was lost
  #abort;
  #group;
  #change = Promise.resolve(); // the last extend or conversion; one runs at a time

  constructor(core, id, handle, name, token) {
    this.#core = core;
    this.#id = id;
    this.#handle = handle;
    this.name = name;
    this.token = token;
  }

  /** Aborted with a LostError as soon as JavaScript can be told that the lease is lost. */
  get signal() {
    if (!this.#abort) {
      this.#abort = new AbortController();
      if (this.#why) this.#abort.abort(this.#why);
    }
    return this.#abort.signal;
  }

  /** Milliseconds that are certainly left, by the clock now: right even while the loop is blocked. */
  get remaining() {
    return this.#state === 'held' ? native.left(this.#handle) : 0;
  }

  get held() {
    return this.remaining > 0;
  }

  /** Makes the lease good for at least ttl from now; without ttl, its own. Never shortens. */
  async extend(ttl) {
    const ms = milliseconds(ttl, 'ttl') ?? 0;
    await this.#inTurn((id) => native.extend(this.#handle, ms, id));
  }

  /** From reader to writer, with a new token. HF_BUSY: there are other readers. */
  async upgrade() {
    await this.#inTurn((id) => native.convert(this.#handle, true, id));
    this.token = native.token(this.#handle);
  }

  /** From writer to reader; waiting readers are admitted. */
  async downgrade() {
    await this.#inTurn((id) => native.convert(this.#handle, false, id));
  }

  async release() {
    if (this.#state !== 'held') throw this.#refusal();
    this.#state = 'released';
    try {
      if (!native.release(this.#handle)) await this.#core.outcome(this.#id);
    } catch (e) {
      const error = translate(e);
      if (error instanceof LostError) this.#toldLost(error);
      throw error;
    } finally {
      this.#forget();
      if (ended.hasSubscribers) ended.publish({ lease: this });
    }
  }

  /** The end of `await using`: a lease that was lost throws why. */
  async [asyncDispose]() {
    if (this.#state === 'held') await this.release();
    else if (this.#state === 'lost') throw this.#why;
  }

  toJSON() {
    return { name: this.name, token: this.token, remaining: this.remaining };
  }

  /** @private The library reported the loss, or another lease of the group was lost. */
  lose(error) {
    if (this.#state !== 'held') return;
    this.#toldLost(error);
    this.#forget();
  }

  /** @private The client was closed, which released the lease. */
  closed() {
    if (this.#state !== 'held') return;
    this.#state = 'closed';
    this.#forget();
  }

  /** @private */
  joinGroup(group) {
    this.#group = group;
    if (this.#state === 'lost') group.loseAll(this, this.#why);
  }

  #toldLost(error) {
    this.#state = 'lost';
    this.#why = error;
    this.#abort?.abort(error);
    this.#group?.loseAll(this, error);
    if (lost.hasSubscribers) lost.publish({ lease: this, error });
    this.#core.lost(this, error);
  }

  /** The handle is freed behind a change that still uses it. */
  #forget() {
    this.#core.leases.delete(this.#id);
    this.#change.finally(() => native.free(this.#handle));
  }

  #refusal() {
    if (this.#state === 'closed') return makeError('CLOSED', `${this.name}: the client is closed`);
    return this.#why ?? makeError('NOT_HELD', `${this.name}: not held`);
  }

  /** begin(id) returns whether the change is done; otherwise its outcome comes under the id. */
  async #inTurn(begin) {
    const run = async () => {
      if (this.#state !== 'held') throw this.#refusal();
      const id = this.#core.nextId();
      try {
        if (!begin(id)) await this.#core.outcome(id);
      } catch (error) {
        throw translate(error);
      }
    };
    const result = this.#change.then(run);
    this.#change = result.catch(() => {});
    await result;
  }
}

/** Several leases that were taken together, in the order of their names as given. If one is lost,
 * the others are given up. */
class Leases {
  #all;
  #abort = new AbortController();

  constructor(all) {
    this.#all = all;
    for (const lease of all) lease.joinGroup(this);
  }

  get all() {
    return [...this.#all];
  }

  [Symbol.iterator]() {
    return this.#all[Symbol.iterator]();
  }

  get signal() {
    return this.#abort.signal;
  }

  get held() {
    return this.#all.every((lease) => lease.held);
  }

  get remaining() {
    return Math.min(...this.#all.map((lease) => lease.remaining));
  }

  /** Each name with its token. */
  get tokens() {
    return Object.fromEntries(this.#all.map((lease) => [lease.name, lease.token]));
  }

  async extend(ttl) {
    await together(this.#all.map((lease) => lease.extend(ttl)));
  }

  async release() {
    await together(this.#all.map((lease) => lease.release()));
  }

  async [asyncDispose]() {
    await together(this.#all.map((lease) => lease[asyncDispose]()));
  }

  toJSON() {
    return this.#all.map((lease) => lease.toJSON());
  }

  /** @private Freeing the handle of a held lease releases it. */
  loseAll(first, error) {
    if (this.#abort.signal.aborted) return;
    this.#abort.abort(error);
    for (const lease of this.#all)
      if (lease !== first)
        lease.lose(makeError('LOST', `${lease.name}: given up, because ${first.name} was lost`));
  }
}

/** Waits for all; then the first error, if any. */
async function together(promises) {
  const failed = (await Promise.allSettled(promises)).find((one) => one.status === 'rejected');
  if (failed) throw failed.reason;
}

module.exports = { Lease, Leases, asyncDispose };
