'use strict';
// errors.js - the errors of the package: few classes, and the library's status as a stable code.

/** The code is the name of a status of the library with a prefix: 'HF_BUSY'. */
class HoldfastError extends Error {
  constructor(code, message, options) {
    super(message, options);
    this.code = code;
  }

  get name() {
    return this.constructor.name;
  }
}

/** Others hold it: HF_BUSY, HF_TIMEOUT. `holder` says who, as far as the engine told: a Row whose
 * pid is 0 if only the time is known. */
class BusyError extends HoldfastError {
  /** Milliseconds until that hold ends unless it is renewed; undefined: not known. */
  get retryAfter() {
    return this.holder && this.holder.leftMs >= 0 ? this.holder.leftMs : undefined;
  }
}
/** The lease was held and is not any more: HF_LOST, HF_NOT_HELD. */
class LostError extends HoldfastError {}
/** No server said yes or no: HF_UNAVAILABLE, HF_NO_QUORUM, HF_IN_DOUBT, HF_NOT_REPLICATED. */
class UnavailableError extends HoldfastError {}

const CLASSES = {
  BUSY: BusyError,
  TIMEOUT: BusyError,
  LOST: LostError,
  NOT_HELD: LostError,
  UNAVAILABLE: UnavailableError,
  NO_QUORUM: UnavailableError,
  IN_DOUBT: UnavailableError,
  NOT_REPLICATED: UnavailableError,
};

function makeError(status, message, holder) {
  const error = new (CLASSES[status] ?? HoldfastError)('HF_' + status, message);
  if (holder) error.holder = holder;
  return error;
}

/** Turns an error of the addon, whose code is a bare status, into one of the classes above. */
function translate(error) {
  const isOurs = error instanceof HoldfastError || typeof error?.code !== 'string';
  return isOurs ? error : makeError(error.code, error.message, error.holder);
}

module.exports = { HoldfastError, BusyError, LostError, UnavailableError, makeError, translate };
