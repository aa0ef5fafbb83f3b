// browser.mjs - the page in a real browser: what it shows, how soon, and what it looks like. Prints TAP.
//
//     node browser.mjs BASE URL FOLDER ENGINE_PID SERVICE_PID
//
// HOLDFAST is the command, PLAYWRIGHT where playwright-core is installed, CHROMIUM the browser. Screenshots of each view,
// light and dark, wide and at 360 px, are left in FOLDER.
import { spawn } from 'node:child_process';
import { readFileSync, unlinkSync } from 'node:fs';
import { createRequire } from 'node:module';

const { chromium } = createRequire(process.env.PLAYWRIGHT + '/')('playwright-core');
const [base, url, folder, enginePid, servicePid] = process.argv.slice(2);
const SECOND = 1000, LONG_TASK_MS = 50;
let count = 0;

function result(fine, name, detail) {
  console.log(`${fine ? 'ok' : 'not ok'} ${++count} - ${name}`);
  if (!fine) console.log('# ' + JSON.stringify(detail ?? null));
}
const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

async function ask(method, path, body) {
  const answer = await fetch(base + path, { method, body: body && JSON.stringify(body), headers: { 'Content-Type': 'application/json' } });
  const text = await answer.text();
  return { status: answer.status, ...(text ? JSON.parse(text) : {}) };
}
const acquire = (name, body) => ask('POST', `/v1/locks/${encodeURIComponent(name)}/leases`, body);

// How long it takes until the page agrees, in ms; -1: it never does.
async function until(page, test, argument, most = 5 * SECOND) {
  const began = performance.now();
  try {
    await page.waitForFunction(test, argument, { timeout: most, polling: 20 });
    return performance.now() - began;
  } catch {
    return -1;
  }
}
const within = (ms, most) => ms >= 0 && ms <= most;
const text = (page, selector) => page.locator(selector).innerText();
const row = (page, name) => page.locator('#locks tbody tr', { has: page.locator(`a:text-is("${name}")`) });
const go = (page, hash) => page.evaluate((to) => { location.hash = to; }, hash);

const browser = await chromium.launch({ executablePath: process.env.CHROMIUM, args: ['--no-sandbox'] });
const page = await browser.newPage({ viewport: { width: 1280, height: 900 } });
const errors = [];
page.on('pageerror', (error) => errors.push(String(error)));
page.on('console', (message) => {
  // The browser itself notes every answer above 399 and every connection that ends; those are not the page's.
  if (message.type() === 'error' && !/^Failed to load resource/.test(message.text())) errors.push(message.text());
});

async function live() {
  await page.goto(base + '/');
  const took = await until(page, () => document.getElementById('live').textContent === 'live');
  result(within(took, 3 * SECOND), 'the page is live', took);
  result(await page.locator('#trouble').isHidden(), 'there is no trouble when all is well');
  result(await page.locator('#nothing').isVisible(), 'nothing is held, in words');
}

async function appears() {
  const job = spawn(process.env.HOLDFAST, ['-u', url, 'run', '--label', 'nightly report', 'reports/nightly', '--', 'sleep', '3'], { stdio: 'ignore' });
  const ended = new Promise((resolve) => job.on('exit', resolve));
  const took = await until(page, () => [...document.querySelectorAll('#locks a')].some((a) => a.textContent === 'reports/nightly'));
  result(within(took, SECOND), 'a lock appears within a second of holdfast run', took);
  const words = await row(page, 'reports/nightly').innerText();
  result(/nightly report/.test(words) && /pid \d+/.test(words), 'with its holder', words);
  await ended;
  const gone = await until(page, () => ![...document.querySelectorAll('#locks a')].some((a) => a.textContent === 'reports/nightly'));
  result(within(gone, SECOND), 'and is gone within a second of its end', gone);
}

async function shrinks() {
  await acquire('shrinking', { ttlMs: 6000, label: 'a cook' });
  await until(page, () => document.querySelectorAll('#locks tbody tr').length === 1);
  const bar = row(page, 'shrinking').locator('.bar i'), left = row(page, 'shrinking').locator('[data-label="Time left"] .ticking');
  const part = (each) => each.getBoundingClientRect().width / each.parentElement.getBoundingClientRect().width;
  const before = await bar.evaluate(part), number = await left.innerText();
  await sleep(1500);
  const after = await bar.evaluate(part), later = await left.innerText();
  result(before - after > 0.15 && before - after < 0.45, 'the bar shrinks with the time', { before, after });
  result(parseFloat(number) - parseFloat(later) > 1, 'and so does its number', { number, later });
  const low = await until(page, () => /little time is left/.test(document.getElementById('trouble-list').textContent), null, 6000);
  result(low >= 0, 'a lease that nobody renews is trouble before it ends');
  const lost = await until(page, () => /shrinking: the lease of a cook ran out before it was given back/.test(document.getElementById('trouble-list').textContent), null, 6000);
  result(lost >= 0, 'a lost lock is shown in words', await text(page, '#trouble-list').catch(() => ''));
}

async function oneLock() {
  const first = await acquire('deploy/web', { ttlMs: 60000, label: 'release 4.2' });
  const waiting = [1, 2].map((i) => acquire('deploy/web', { ttlMs: 60000, waitMs: 20000, label: 'release 4.' + (2 + i) }));
  await until(page, () => document.querySelectorAll('#locks tbody tr').length === 1);
  const queued = await until(page, () => /2, oldest/.test(document.querySelector('#locks tbody').textContent));
  result(queued >= 0, 'waiters are counted, with the oldest wait');
  await row(page, 'deploy/web').locator('a').click();
  await until(page, () => document.querySelectorAll('#queue tbody tr').length === 2);
  result((await text(page, '#h-lock')) === 'deploy/web', 'the view of one lock has its name');
  const queue = await page.locator('#queue tbody tr').allInnerTexts();
  result(queue.every((words, i) => words.includes(`${i + 1}\n`) && /release 4\.[34]/.test(words)), 'the queue in its order', queue);
  return { first, waiting };
}

async function writes() {
  const lease = await acquire('shelf', { kind: 'write', ttlMs: 60000 });
  await go(page, '#/lock/shelf');
  await until(page, () => document.querySelectorAll('#holders tbody tr').length === 1);
  const holder = await text(page, '#holders tbody');
  result(/\ball\b/.test(holder) && !/1048576/.test(holder), 'a writer has all units, not a number of them', holder);
  await ask('DELETE', '/v1/leases/' + lease.leaseId);
  await go(page, '#/');
  await until(page, () => document.querySelectorAll('#locks tbody tr').length === 0);
}

async function openBreaking(name) {
  await page.locator('#break').click();
  result(await page.locator('#b-go').isDisabled(), 'breaking asks for more');
  await page.locator('#b-name').fill(name);
  result(await page.locator('#b-go').isDisabled(), 'the name alone is not enough');
  await page.locator('#b-reason').fill('it hangs');
}

async function breaks({ first, waiting }) {
  await openBreaking('deploy/wrong');
  result(await page.locator('#b-go').isDisabled(), 'nor is another name with a reason');
  await page.locator('#b-name').fill('deploy/web');
  await shoot('break');
  await ask('DELETE', '/v1/leases/' + first.leaseId);
  await Promise.race(waiting);
  await page.locator('#b-go').click();
  await until(page, () => document.getElementById('b-words').textContent !== '');
  result(/changed hands/.test(await text(page, '#b-words')), 'a lock that changed hands meanwhile is not broken, and the page says so', await text(page, '#b-words'));
  await page.keyboard.press('Escape');
  result(!(await page.locator('#breaking').isVisible()), 'Escape closes the dialog');
  await sleep(700);
  await openBreaking('deploy/web');
  const now = await ask('GET', '/v1/locks/deploy%2Fweb');
  await page.locator('#b-go').click();
  const closed = await until(page, () => !document.getElementById('breaking').open);
  const broken = await ask('GET', '/v1/locks/deploy%2Fweb');
  result(closed >= 0 && broken.holders[0]?.token !== now.holders[0].token, 'with name and reason it is broken', broken);
  const second = await Promise.all(waiting);
  await sleep(1000);
  result(/granted/.test(await text(page, '#events tbody')), 'the log of events has the hand-overs', await text(page, '#events tbody'));
  result(/broken: it hangs/.test(await text(page, '#events tbody')), 'and who was taken away from, with the reason', await text(page, '#events tbody'));
  const holds = await page.locator('#gantt tbody tr').allInnerTexts();
  result(/release 4\.2.*broken.*held now/s.test(holds.join(' ')), 'the Gantt says how each hold ended', holds);
  const bars = await page.locator('#gantt .lane i').evaluateAll((all) => all.map((each) => each.getBoundingClientRect()).map((box) => [box.left, box.right]));
  result(bars.length === 3 && bars.every(([, end], i) => i + 1 === bars.length || end <= bars[i + 1][0] + 3), 'and no two of one lock overlap', bars);
  await shoot('lock');
  for (const each of second) await ask('DELETE', '/v1/leases/' + each.leaseId);
}

async function keyboard() {
  await page.keyboard.press('/');
  result(await page.evaluate(() => document.activeElement.id === 'filter' && location.hash === '#/'), 'a slash leads to the filter');
  await page.keyboard.type('nothing like this');
  result(/No name contains that|Nothing is held/.test(await text(page, '#nothing')), 'the filter says when nothing is left');
  await page.locator('#filter').fill('');
  await page.locator('#locks a').first().focus().catch(() => {});
}

// Each view that is shown now, light and dark, wide and narrow.
async function shoot(view) {
  for (const colorScheme of ['light', 'dark'])
    for (const width of [1280, 360]) {
      await page.emulateMedia({ colorScheme, reducedMotion: 'reduce' });
      await page.setViewportSize({ width, height: width === 360 ? 740 : 900 });
      await sleep(80);
      const wide = await page.evaluate(() => document.documentElement.scrollWidth);
      if (width === 360) result(wide <= 360, `${view} fits into 360 px, ${colorScheme}`, wide);
      await page.screenshot({ path: `${folder}/${view}-${colorScheme}-${width}.png`, fullPage: view === 'lock' || view === 'patterns' });
    }
  await page.emulateMedia({ colorScheme: 'light', reducedMotion: null });
  await page.setViewportSize({ width: 1280, height: 900 });
}

// The tasks of the page's main thread: what each took, and what of it was the thread's own time. Only that is the page's
// doing; how long somebody else had the processor meanwhile is the machine's.
async function traced() {
  await browser.stopTracing();
  const { traceEvents } = JSON.parse(readFileSync(folder + '/trace.json'));
  unlinkSync(folder + '/trace.json');
  const threads = new Set(traceEvents.filter((each) => each.name === 'thread_name' && each.args.name === 'CrRendererMain').map((each) => `${each.pid} ${each.tid}`));
  return traceEvents.filter((each) => each.name === 'ThreadControllerImpl::RunTask' && each.tdur && threads.has(`${each.pid} ${each.tid}`))
    .map((each) => ({ own: each.tdur / 1000, took: each.dur / 1000 }));
}

async function crowd() {
  const kinds = [{ ttlMs: 90000, label: 'worker' }, { ttlMs: 90000, kind: 'semaphore', capacity: 8, label: 'importer' }, { ttlMs: 90000, kind: 'read', label: 'report' }];
  for (let i = 0; i < 200; i++) await acquire(`tenant-${i % 20}/job-${i}`, kinds[i % 3]);
  await go(page, '#/');
  const all = await until(page, () => document.querySelectorAll('#locks tbody tr').length === 200);
  result(all >= 0, '200 locks are shown');
  await page.evaluate(() => {
    window.events = 0;
    const rows = (nodes) => [...nodes].filter((node) => /^busy/.test(node.textContent)).length;
    new MutationObserver((list) => { for (const { addedNodes, removedNodes } of list) window.events += rows(addedNodes) + rows(removedNodes); }).observe(document.querySelector('#locks tbody'), { childList: true });
  });
  await browser.startTracing(page, { path: folder + '/trace.json', categories: ['toplevel'] });
  // Held for longer than the page looks away, or it would see nothing of them.
  const began = performance.now(), open = [];
  for (let i = 0; performance.now() - began < 6 * SECOND; i++) {
    open.push((await acquire('busy/' + i, { ttlMs: 20000 })).leaseId);
    if (open.length > 15) await ask('DELETE', '/v1/leases/' + open.shift());
    await sleep(40);
  }
  const rate = await page.evaluate(() => window.events) / (performance.now() - began) * SECOND;
  result(rate >= 20, 'the page shows 20 events a second: a row that comes or goes', rate);
  const tasks = await traced();
  for (const lease of open) await ask('DELETE', '/v1/leases/' + lease);
  const [most] = tasks.sort((a, b) => b.own - a.own), slowest = Math.max(...tasks.map((each) => each.took));
  console.log(`# ${tasks.length} tasks, the largest ${most.own.toFixed(1)} ms of the page's own time; the slowest took ${slowest.toFixed(1)} ms with all else that the machine did`);
  result(tasks.length > 100 && most.own < LONG_TASK_MS, '200 locks and 20 events a second make no long task', tasks.slice(0, 5));
  for (const name of ['orders/settle', 'orders/ship']) {
    await acquire(name, { ttlMs: 9000, label: 'settlement' });
    acquire(name, { ttlMs: 9000, waitMs: 8000, label: 'next one' });
  }
  await sleep(7600);
  result((await page.locator('#locks tbody tr').first().innerText()).startsWith('orders/'), 'trouble comes first', await page.locator('#locks tbody tr').first().innerText());
  await shoot('now');
  await go(page, '#/patterns');
  await until(page, () => document.querySelectorAll('#top tbody tr').length > 0);
  result(/orders\//.test(await text(page, '#top')), 'the patterns know who was waited for');
  await shoot('patterns');
  await go(page, '#/');
}

async function engineDies() {
  process.kill(Number(enginePid), 'SIGKILL');
  const took = await until(page, () => /engine down|stale/.test(document.getElementById('live').textContent));
  result(within(took, 2 * SECOND), 'killing the engine shows within two seconds', took);
  result((await text(page, '#engine')).length > 0, 'in words', await text(page, '#engine'));
  await sleep(300);
  result(Number(await page.locator('main').evaluate((each) => getComputedStyle(each).opacity)) < 1, 'and the page greys');
  await shoot('down');
  process.kill(Number(servicePid), 'SIGKILL');
  const stale = await until(page, () => /^stale since/.test(document.getElementById('live').textContent));
  result(within(stale, 2 * SECOND), 'a broken stream is stale since a time', await text(page, '#live'));
}

await live();
await appears();
await shrinks();
await writes();
await breaks(await oneLock());
await keyboard();
await crowd();
await engineDies();
result(errors.length === 0, 'there was no error on the console', errors);
await browser.close();
console.log('1..' + count);
