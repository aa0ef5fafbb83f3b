'use strict';
// native.js - finds and loads the addon: the binary that comes with the package, or one built here.
const path = require('node:path');

const folder = path.join(__dirname, '..');
const places = [
  path.join(folder, 'prebuilds', `${process.platform}-${process.arch}`, 'holdfast.node'),
  path.join(folder, 'sources', 'build', 'Release', 'holdfast.node'),
];

function load() {
  const reasons = [];
  for (const place of places) {
    try {
      return require(place);
    } catch (error) {
      reasons.push(error.message.split('\n')[0]);
    }
  }
  throw new Error(`holdfast: no addon for ${process.platform}-${process.arch}: ${reasons.join('; ')}`);
}

module.exports = load();
