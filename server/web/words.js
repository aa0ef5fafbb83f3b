// words.js - what is said of times, of people and of units.

export function duration(ms) {
  if (ms == null || ms < 0) return '–';
  const s = ms / 1000;
  if (s < 10) return s.toFixed(1) + ' s';
  if (s < 60) return Math.floor(s) + ' s';
  if (s < 3600) return Math.floor(s / 60) + ' min ' + Math.floor(s % 60) + ' s';
  return Math.floor(s / 3600) + ' h ' + Math.floor((s % 3600) / 60) + ' min';
}
export const who = (row) => row.foreign ? 'another program' : (row.label || 'pid ' + row.pid);
export const where = (row) => row.foreign ? '' : row.host + ', pid ' + row.pid;
// A lock for readers and writers has no capacity that is worth a word.
export function units(row) {
  if (row.kind !== 'read' && row.kind !== 'write') return row.units + ' of ' + row.capacity;
  return row.units === row.capacity ? 'all' : String(row.units);
}
export const clock = (ms) => new Date(ms).toLocaleTimeString([], { hour: '2-digit', minute: '2-digit', second: '2-digit' });
