// index.mjs - the package for import: the same objects that require() gets.
import holdfast from './index.js';

export const {
  Client, Lease, Leases, HoldfastError, BusyError, LostError, UnavailableError, version, engines,
} = holdfast;
export default holdfast;
