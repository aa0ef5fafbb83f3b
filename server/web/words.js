// words.js - durations, clients and units in words.

export function duration(ms) {
  if (ms == null || ms < 0) return '–';
  const s = ms / 1000;
  if (s < 10) return s.toFixed(1) + ' s';
  if (s < 60) return Math.floor(s) + ' s';
  if (s < 3600) return Math.floor(s / 60) + ' min ' + Math.floor(s % 60) + ' s';
  return Math.floor(s / 3600) + ' h ' + Math.floor((s % 3600) / 60) + ' min';
}
// With milliseconds, for times that need them.
export const fine = (ms) => (ms < 1000 ? ms + ' ms' : duration(ms));
// The label of a hold through a service ends with its caller: LABEL @ CALLER, or @ CALLER alone.
export const labelled = (label) => label.replace(/^@ /, '');
export const isThroughService = (row) => row.detached && /(^| )@ ./.test(row.label);
export const who = (row) => row.foreign ? 'another program' : (labelled(row.label) || 'pid ' + row.pid);
// The process of a hold. For a hold through a service that is the service's own process, so nothing
// is shown.
export const where = (row) => row.foreign || isThroughService(row) ? '' : row.host + ', pid ' + row.pid;
// The capacity of a lock for readers and writers has no meaning for users.
export function units(row) {
  if (row.kind !== 'read' && row.kind !== 'write') return row.units + ' of ' + row.capacity;
  return row.units === row.capacity ? 'all' : String(row.units);
}
// Formatted by hand: the browser's own function takes fifty times as long, and every row has a
// time.
const two = (number) => String(number).padStart(2, '0');
export function clock(ms) {
  const time = new Date(ms);
  return `${two(time.getHours())}:${two(time.getMinutes())}:${two(time.getSeconds())}`;
}
// The share of a lock that is in use, in words.
export function use(lock) {
  const count = lock.holders.length;
  if (lock.kind === 'semaphore') return `${lock.used} of ${lock.capacity} in use`;
  if (!count) return 'free';
  if (lock.holders[0].kind === 'read') return count === 1 ? '1 reader' : count + ' readers';
  return lock.holders[0].kind === 'write' ? '1 writer' : 'held';
}
