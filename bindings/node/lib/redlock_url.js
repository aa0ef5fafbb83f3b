'use strict';
// redlock_url.js - the servers of ioredis and node-redis clients as one URL of the library.

const DEFAULT_PORT = 6379;

function refuse(text) {
  return new TypeError(`holdfast/redlock: ${text}`);
}

/** Returns the options of a client that matter here: ioredis has `options.host`, node-redis
 * `options.socket` or `options.url`. */
function describe(client) {
  const options = client?.options;
  if (client?.isCluster || typeof client?.nodes === 'function') throw refuse('a Cluster client is not supported yet');
  if (!options || typeof options !== 'object') throw refuse('a client is neither of ioredis nor of node-redis');
  if (options.sentinelPassword) throw refuse('a password of the sentinels: name its file in settings.url');
  const { socket = {} } = options;
  const place = {
    host: options.host ?? socket.host ?? 'localhost',
    port: options.port ?? socket.port ?? DEFAULT_PORT,
    path: options.path ?? socket.path,
    username: options.username ?? '',
    password: options.password ?? '',
    database: options.db ?? options.database ?? 0,
    tls: options.tls ?? socket.tls,
    prefix: options.keyPrefix ?? '',
    sentinels: options.sentinels,
    name: options.name,
    tlsForServers: options.enableTLSForSentinelMode,
    sentinelTls: options.sentinelTLS,
  };
  return options.url ? { ...place, ...parse(options.url) } : place;
}

function parse(text) {
  const url = new URL(text);
  const place = { host: url.hostname, port: Number(url.port) || DEFAULT_PORT, tls: url.protocol === 'rediss:' };
  if (url.username) place.username = decodeURIComponent(url.username);
  if (url.password) place.password = decodeURIComponent(url.password);
  if (url.pathname.length > 1) place.database = Number(url.pathname.slice(1));
  return place;
}

function credentials({ username, password }) {
  if (!password) return '';
  return `${encodeURIComponent(username)}:${encodeURIComponent(password)}@`;
}

function hostAndPort({ host, port }) {
  const bare = host.replace(/^\[|\]$/g, ''); // an IPv6 address of a URL comes in brackets
  return `${bare.includes(':') ? `[${bare}]` : bare}:${port}`;
}

/** Certificates in memory, which must be the same for all clients. Verification cannot be turned off. */
function certificatesOf(clients) {
  const all = clients.map(describe).map(({ tls }) => (tls && typeof tls === 'object' ? tls : {}));
  for (const tls of all) {
    if (tls.pfx !== undefined) throw refuse('tls.pfx: give ca, cert and key as PEM');
    if (tls.rejectUnauthorized === false) throw refuse('tls.rejectUnauthorized: certificates are always verified');
  }
  const texts = all.map(({ ca, cert, key }) => JSON.stringify([ca, cert, key].map((one) => one && String(one))));
  if (new Set(texts).size > 1) throw refuse('all clients must have the same certificates');
  const { ca, cert, key } = all[0] ?? {};
  return { ca, cert, key };
}

/** The primary that sentinels watch, of a client of ioredis. */
function watched(place) {
  if (!place.name) throw refuse('a Sentinel client without the name of its primary');
  const hosts = place.sentinels.map(({ host, port = 26379 }) => hostAndPort({ host, port })).join(',');
  if (Number(place.database)) throw refuse('a Sentinel client must use database 0');
  const secure = place.tls && place.tlsForServers; // ioredis has a switch of its own for it
  return `${secure ? 'rediss' : 'redis'}+sentinel://${credentials(place)}${hosts}/${encodeURIComponent(place.name)}` +
    `?sentinel_tls=${place.sentinelTls ? 1 : 0}`;
}

function single(place) {
  if (place.sentinels) return watched(place);
  const database = place.database ? `/${place.database}` : '';
  if (place.path && database) throw refuse('a client with a socket path must use database 0');
  if (place.path) return `redis+unix://${credentials(place)}${place.path.split('/').map(encodeURIComponent).join('/')}`;
  return `${place.tls ? 'rediss' : 'redis'}://${credentials(place)}${hostAndPort(place)}${database}`;
}

function several(places) {
  if (places.some((place) => place.path)) throw refuse('several servers must have hosts and ports');
  if (places.some((place) => place.sentinels)) throw refuse('a Sentinel client must be the only one');
  if (places.some((place) => Number(place.database))) throw refuse('several servers must use database 0');
  return 'redlock://' + places
    .map((place) => (place.tls ? 'rediss://' : '') + credentials(place) + hostAndPort(place)).join(',');
}

/** settings: a mapping of names to values that become the query, such as { max_ttl: '30s' } */
function urlOf(clients, settings) {
  const places = clients.map(describe);
  const prefixes = new Set(places.map((place) => String(place.prefix)));
  if (prefixes.size > 1) throw refuse('all clients must have the same keyPrefix');
  const url = places.length === 1 ? single(places[0]) : several(places);
  const query = Object.entries({ prefix: [...prefixes][0], ...settings })
    .map(([name, value]) => `${name}=${encodeURIComponent(value)}`).join('&');
  return url + (url.includes('?') ? '&' : '?') + query;
}

module.exports = { urlOf, certificatesOf };
