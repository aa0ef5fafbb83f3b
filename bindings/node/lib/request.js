'use strict';
// request.js - options of a call, checked, in the order in which the addon reads them.
const native = require('./native.js');
const { HoldfastError, translate } = require('./errors.js');

const FOREVER = -1;
const WAIT_DEFAULT = -2; // as URL or environment say
const FLAGS = { RENEW: 1, BARGING: 4, TOKENLESS: 8 };
const KINDS = new Map([['exclusive', 0], ['semaphore', 1], ['read', 2], ['write', 3]]);
const KNOWN = new Set(['ttl', 'wait', 'signal', 'kind', 'capacity', 'units', 'owner', 'label',
  'correlationId', 'maxHold', 'renew', 'barging', 'tokenless']);

/** Half of a surrogate pair has no UTF-8, and C ends a text at a NUL: two names that differ in it would
 * be one lock, and two owners one owner. */
const isWellFormed = String.prototype.isWellFormed
  ? (text) => text.isWellFormed()
  : (text) => !/\p{Surrogate}/u.test(text);

function invalid(text) {
  return new HoldfastError('HF_INVALID', text);
}

/** Milliseconds of a number or a text with a unit. A bare number in a text would be seconds in the
 * library and milliseconds here, so it is refused. */
function milliseconds(value, name) {
  if (Number.isInteger(value) && value >= 0) return value;
  if (value === undefined) return undefined;
  if (value === Infinity) return FOREVER;
  if (typeof value === 'string' && /^[0-9.]+[a-z]+$/.test(value)) {
    try {
      return native.duration(value);
    } catch (error) {
      throw translate(error);
    }
  }
  throw invalid(`${name}: ${String(value)} is neither whole milliseconds nor a text like '30s'`);
}

function checkText(value, name) {
  if (typeof value !== 'string') throw invalid(`${name}: ${typeof value} is not a string`);
  if (value.includes('\0')) throw invalid(`${name}: has a control character`);
  if (!isWellFormed(value)) throw invalid(`${name}: has half of a surrogate pair`);
  return value;
}

function checkRareText(value, name) {
  return value === undefined ? undefined : checkText(value, name);
}

function checkCount(value, name) {
  if (value === undefined) return 0;
  if (Number.isInteger(value) && value >= 0 && value <= 0xffffffff) return value;
  throw invalid(`${name}: ${String(value)} is not a whole number`);
}

function kindOf(options) {
  const kind = KINDS.get(options.kind ?? (options.capacity === undefined ? 'exclusive' : 'semaphore'));
  if (kind !== undefined) return kind;
  throw invalid(`kind: ${String(options.kind)} is none of ${[...KINDS.keys()].join(', ')}`);
}

function flagsOf(options) {
  let flags = options.renew === false ? 0 : FLAGS.RENEW;
  if (options.barging) flags |= FLAGS.BARGING;
  if (options.tokenless) flags |= FLAGS.TOKENLESS;
  return flags;
}

/** A request as addon_value.c reads it; a short one leaves the rest at its default. */
function makeRequest(name, options, wait) {
  checkText(name, 'name');
  let rare = false;
  for (const key in options) {
    if (!KNOWN.has(key)) throw invalid(`${key}: no such option`);
    rare ||= key !== 'ttl' && key !== 'wait' && key !== 'signal';
  }
  const ttl = milliseconds(options.ttl, 'ttl') ?? 0;
  if (!rare) return [name, ttl, wait, FLAGS.RENEW];
  return [name, ttl, wait, flagsOf(options), kindOf(options),
    checkCount(options.units, 'units'), checkCount(options.capacity, 'capacity'),
    options.maxHold === Infinity ? 0 : milliseconds(options.maxHold, 'maxHold') ?? 0,
    checkRareText(options.owner, 'owner'), checkRareText(options.label, 'label'),
    checkRareText(options.correlationId, 'correlationId')];
}

module.exports = { FOREVER, WAIT_DEFAULT, milliseconds, makeRequest };
