'use strict';
// nest.js - Holdfast in NestJS: a module that opens and closes the client, and a decorator for methods.
// @nestjs/common is the application's own.
const { AsyncLocalStorage } = require('node:async_hooks');
const { Inject, Module } = require('@nestjs/common');
const { Client } = require('./client.js');

const HOLDFAST = Symbol.for('holdfast:client');
const OPTIONS = Symbol.for('holdfast:options');
const PROPERTY = '__holdfastClient';
const leases = new AsyncLocalStorage();

/** Closes the client when the application ends: call app.enableShutdownHooks() for signals. */
class HoldfastModule {
  constructor(client) {
    this.client = client;
  }

  async onApplicationShutdown() {
    await this.client.close();
  }

  static forRoot(options = {}) {
    return HoldfastModule.forRootAsync({ useFactory: () => options });
  }

  static forRootAsync({ imports = [], inject = [], useFactory }) {
    return {
      module: HoldfastModule,
      global: true,
      imports,
      providers: [
        { provide: OPTIONS, inject, useFactory },
        { provide: HOLDFAST, inject: [OPTIONS], useFactory: ({ url, ...options }) => new Client(url, options) },
      ],
      exports: [HOLDFAST],
    };
  }
}
Module({})(HoldfastModule);
Inject(HOLDFAST)(HoldfastModule, undefined, 0);

/** For a parameter of a constructor: the Client. */
const InjectHoldfast = () => Inject(HOLDFAST);

/** For a method: runs it under the lock. name: a text, or a function of the method's arguments. */
function Lock(name, options = {}) {
  return (target, key, descriptor) => {
    const method = descriptor.value;
    Inject(HOLDFAST)(target, PROPERTY);
    descriptor.value = function (...values) {
      const text = typeof name === 'function' ? name(...values) : name;
      return this[PROPERTY].using(text, options, (signal, lease) =>
        leases.run(lease, () => method.apply(this, values)));
    };
    return descriptor;
  };
}

/** The lease under which the running method was called by @Lock; undefined: none. */
const currentLease = () => leases.getStore();

module.exports = { HOLDFAST, HoldfastModule, InjectHoldfast, Lock, currentLease };
