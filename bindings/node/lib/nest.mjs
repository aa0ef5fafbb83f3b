// nest.mjs - holdfast/nest for import.
import nest from './nest.js';

export const { HOLDFAST, HoldfastModule, InjectHoldfast, Lock, currentLease } = nest;
