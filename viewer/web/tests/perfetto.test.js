// @ts-check
/** Who gets a trace, and when. */

import { handOver } from "../perfetto.js";
import { deepEqual, equal, ok } from "./assert.js";

const trace = () => ({ buffer: new Uint8Array([1, 2, 3]).buffer, title: "run (simulated GPUs)", fileName: "run.json" });

/** Runs with what this window is told, which stands for Perfetto's. @param {(data: any) => void} told @param {() => Promise<void>} run */
async function listening(told, run) {
  const listen = (/** @type {MessageEvent} */ event) => told(event.data);
  addEventListener("message", listen);
  await run().finally(() => removeEventListener("message", listen));
}

export const tests = {
  async "a window that answers gets the trace, once"() {
    /** @type {any[]} */
    const got = [];
    let pings = 0;
    await listening((data) => {
      // As a page that is still loading: the first calls are not heard.
      if (data === "PING" && (pings += 1) > 2) postMessage("PONG", location.origin);
      if (data.perfetto) got.push(data.perfetto);
    }, async () => {
      equal(await handOver(window, location.origin, trace()), "given");
      await new Promise((resolve) => setTimeout(resolve, 200));
    });
    equal(got.length, 1);
    const [{ buffer, ...rest }] = got;
    deepEqual([...new Uint8Array(buffer)], [1, 2, 3]);
    deepEqual(rest, { title: "run (simulated GPUs)", fileName: "run.json", localOnly: true });
  },
  async "nobody else gets it"() {
    let given = false;
    await listening((data) => {
      given ||= Boolean(data.perfetto);
      if (data !== "PING") return;
      dispatchEvent(new MessageEvent("message", { data: "PONG", origin: "https://elsewhere.example", source: window }));
      dispatchEvent(new MessageEvent("message", { data: "PONG", origin: location.origin, source: null }));
      dispatchEvent(new MessageEvent("message", { data: "PANG", origin: location.origin, source: window }));
    }, async () => {
      equal(await handOver(window, location.origin, trace(), 300), "silent");
    });
    ok(!given, "it was given");
  },
  async "a window that is closed gets nothing"() {
    const closed = /** @type {any} */ ({ closed: true, postMessage() { throw new Error("it is closed"); } });
    equal(await handOver(closed, "https://ui.perfetto.dev", trace()), "closed");
  },
};
