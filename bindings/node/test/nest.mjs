// nest.mjs - holdfast/nest in a real application of NestJS. Needs @nestjs/core and @nestjs/common of npm, reflect-metadata, rxjs.
import 'reflect-metadata';
import assert from 'node:assert/strict';
import test from 'node:test';
import common from '@nestjs/common';
import core from '@nestjs/core';
import { BusyError, Client } from 'holdfast';
import { HOLDFAST, HoldfastModule, Lock, currentLease } from 'holdfast/nest';
import { fresh, sleep, urls } from './support.mjs';

/** What the compiler makes of decorators. */
function decorate(kind, method, decorator) {
  const descriptor = Object.getOwnPropertyDescriptor(kind.prototype, method);
  Object.defineProperty(kind.prototype, method, decorator(kind.prototype, method, descriptor));
}

class Orders {
  async charge(id, ms) {
    const { token, held } = currentLease();
    await sleep(ms);
    return { id, token, held };
  }
}
decorate(Orders, 'charge', Lock((id) => `order:${id}`, { wait: 0 }));
common.Injectable()(Orders);

const modules = {
  forRoot: (url) => HoldfastModule.forRoot({ url }),
  forRootAsync: (url) => HoldfastModule.forRootAsync({ useFactory: async () => ({ url }) }),
};
for (const url of urls)
  for (const [way, make] of Object.entries(modules))
    test(`${url.split(':')[0]}, ${way}: a method under @Lock is alone, and the end of the application closes the client`, async () => {
      class App {}
      common.Module({ imports: [make(url)], providers: [Orders] })(App);
      const app = await core.NestFactory.createApplicationContext(App, { logger: false });
      const orders = app.get(Orders);
      const id = fresh();
      const first = orders.charge(id, 200);
      await sleep(20);
      await assert.rejects(orders.charge(id, 0), BusyError);
      const result = await first;
      assert.ok(result.held && result.token > 0 && result.id === id);
      assert.ok((await orders.charge(id, 0)).token > result.token);
      assert.equal(currentLease(), undefined);
      const client = app.get(HOLDFAST);
      assert.ok(client instanceof Client);
      await app.close();
      assert.ok(client.closed);
    });
