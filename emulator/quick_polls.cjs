"use strict";
// Loaded into the CDK command line when it deploys to the emulator. The command line looks every 5 seconds whether a
// stack is done, which is right for AWS; the emulator is done in less than that. Nothing else is changed.
const realSetTimeout = globalThis.setTimeout;
const quickSetTimeout = (callback, delayMs, ...rest) => realSetTimeout(callback, delayMs === 5000 ? 100 : delayMs, ...rest);
// Properties such as util.promisify.custom make `promisify(setTimeout)` work.
globalThis.setTimeout = Object.defineProperties(quickSetTimeout, Object.getOwnPropertyDescriptors(realSetTimeout));
