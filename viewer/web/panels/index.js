// @ts-check
/** The views beside the timeline, in the order of their tabs. */

import { compare } from "../compare.js";
import { collectives } from "./collectives.js";
import { copies } from "./copies.js";
import { devices } from "./devices.js";
import { idle } from "./idle.js";
import { kernels } from "./kernels.js";
import { memory } from "./memory.js";
import { operators } from "./operators.js";
import { ranks } from "./ranks.js";
import { steps } from "./steps.js";
import { why } from "./why.js";

export const panels = [why, ranks, steps, idle, kernels, operators, collectives, copies, memory, devices, compare];
export { openHelp, openNotice } from "../help.js";
export { mountJob } from "../jobs.js";
export { mountLibrary } from "../library.js";
export { openPalette } from "../palette.js";
export { mountAnswer } from "./answer.js";
