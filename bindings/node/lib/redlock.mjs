// redlock.mjs - holdfast/redlock for import.
import Redlock from './redlock.js';

export const { Lock, ExecutionError, ResourceLockedError, LockError } = Redlock;
export { Redlock };
export default Redlock;
