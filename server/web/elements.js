// elements.js - makes and changes elements. It writes text only, never markup, and only if the text
// has changed.

export const $ = (id) => document.getElementById(id);

export function make(tag, text, attributes) {
  const element = document.createElement(tag);
  if (text != null) setText(element, text);
  for (const name in attributes || {}) element.setAttribute(name, attributes[name]);
  return element;
}

// The last text is kept beside the element, because reading it from the document is slow.
export function setText(element, text) {
  if (element.said === text) return;
  element.said = text;
  element.textContent = text;
}

// Makes a row of cells. Each cell has the name of its column, for screens that are too narrow for a
// head. Rows are laid out as grids, for which browsers drop the roles of a table, so the roles are
// written here.
export function makeRow(labels) {
  const row = make('tr', null, { role: 'row' });
  const cells = labels.map((label) => make('td', null, { role: 'cell', 'data-label': label }));
  row.append(...cells);
  return { row, cells };
}

const PLACED_MAX = 6; // most rows to add, remove or move in one frame, because each is laid out and painted anew
const HURRIED_MAX = 12;

// Makes the rows of a table those of `items`, in their order. A row keeps its element as long as
// its key stays the same, so nothing flickers and the focus stays. `update` is called for every
// item that has its row. Work beyond one frame is done in the next frames, unless new items come
// first. If table.hurries is set, because the user has just chosen something, a frame may take
// longer.
export function keepRows(table, items, how) {
  const kept = table.kept ||= new Map(), keys = new Set(items.map(how.key));
  let room = table.hurries ? HURRIED_MAX : PLACED_MAX, after = null;
  const may = () => room-- > 0;
  const isGoing = (row) => row && !keys.has(row.key);
  for (const [key, parts] of kept)
    if (!keys.has(key) && may()) {
      how.remove?.(parts);
      parts.row.remove();
      kept.delete(key);
    }
  for (const item of items) {
    const key = how.key(item);
    let parts = kept.get(key), place = after ? after.nextElementSibling : table.tBodies[0].firstElementChild;
    while (isGoing(place)) place = place.nextElementSibling;
    if ((!parts || parts.row !== place) && !may()) continue;
    if (!parts) kept.set(key, parts = how.create(item));
    parts.row.key = key;
    how.update(parts, item);
    if (parts.row !== place) table.tBodies[0].insertBefore(parts.row, place);
    after = parts.row;
  }
  cancelAnimationFrame(table.rest);
  if (room < 0) table.rest = requestAnimationFrame(() => keepRows(table, items, how));
  else table.hurries = false;
}

// Text in an element of fixed size: if the text changes, no other element must be laid out.
export const makeTicking = () => make('span', null, { class: 'ticking' });

// ---- A bar that shows the time left ----

export function makeBar() {
  const bar = make('span', null, { class: 'bar', 'aria-hidden': 'true' });
  bar.append(make('i'));
  return bar;
}

// A bar is 136 pixels long. Written four times a second together with its number, it shrinks as
// smoothly as an animation, without a layer for each bar.
export function drain(bar, part) {
  const scale = `scaleX(${part.toFixed(3)})`;
  if (bar.scale !== scale) bar.firstElementChild.style.transform = bar.scale = scale;
}

// ---- How often each value of a column occurs ----

export function drawColumns(place, values) {
  const most = Math.max(1, ...values.map((each) => each.value));
  place.replaceChildren(...values.map((each) => {
    const item = make('li'), bar = make('i', null, { class: each.value ? '' : 'none' });
    bar.style.height = each.value / most * 100 + '%';
    const track = make('span', null, { class: 'track' });
    track.append(make('b', String(each.value)), bar);
    item.append(track, make('span', each.label));
    return item;
  }));
}
