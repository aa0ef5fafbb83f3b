// nest.d.ts - the types of holdfast/nest. CMake and `npm pack` copy them to nest.d.mts.
import type { DynamicModule, ModuleMetadata } from '@nestjs/common';
import type { AcquireOptions, ClientOptions, Lease, Leases } from './index.js';

export interface HoldfastModuleOptions extends ClientOptions {
  /** If it is missing: $HOLDFAST_URL, else this machine. */
  url?: string;
}

/** Opens a Client for the whole application and closes it in onApplicationShutdown. */
export class HoldfastModule {
  static forRoot(options?: HoldfastModuleOptions): DynamicModule;
  static forRootAsync(options: {
    imports?: ModuleMetadata['imports'];
    inject?: unknown[];
    useFactory: (...values: any[]) => HoldfastModuleOptions | Promise<HoldfastModuleOptions>;
  }): DynamicModule;
}

/** The token under which the Client is provided. */
export const HOLDFAST: unique symbol;
/** For a parameter of a constructor: the Client. */
export function InjectHoldfast(): ParameterDecorator & PropertyDecorator;
/** For a method: runs it under the lock. name: a text, or a function of the method's arguments. */
export function Lock(name: string | string[] | ((...values: any[]) => string | string[]), options?: AcquireOptions): MethodDecorator;
/** The lease under which the running method was called by @Lock. */
export function currentLease(): Lease | Leases | undefined;
