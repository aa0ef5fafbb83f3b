// redlock.d.mts - the types of holdfast/redlock for import; redlock.d.ts has them all.
import Redlock from './redlock.js';

export import Lock = Redlock.Lock;
export import ExecutionError = Redlock.ExecutionError;
export import ResourceLockedError = Redlock.ResourceLockedError;
export import LockError = Redlock.LockError;
export type Settings = Redlock.Settings;
export type Options = Redlock.Options;
export type ExecutionStats = Redlock.ExecutionStats;
export type ExecutionResult = Redlock.ExecutionResult;
export type RedlockAbortSignal = Redlock.RedlockAbortSignal;
export { Redlock };
export default Redlock;
