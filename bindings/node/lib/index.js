'use strict';
// index.js - the package for require().
const native = require('./native.js');
const { Client } = require('./client.js');
const { Lease, Leases } = require('./lease.js');
const { HoldfastError, BusyError, LostError, UnavailableError } = require('./errors.js');

module.exports = {
  Client,
  Lease,
  Leases,
  HoldfastError,
  BusyError,
  LostError,
  UnavailableError,
  version: native.version,
  engines: native.engines.split(' '),
};
