// @ts-check
/**
 * A recording in Perfetto's viewer, in the user's own browser: the trace is fetched here and handed to its window by
 * `postMessage`, so that it goes through no other machine.
 */

import { h } from "./dom.js";
import { bytes } from "./format.js";

/** Between two calls to a window that may still be loading. */
const CALL_MS = 60;
/** A window that does not answer for so long never will. */
const PATIENCE_MS = 60_000;

/**
 * Gives a window of Perfetto's a trace, as soon as it listens. Its answer, "PONG", is the only sign that it does.
 * @param {Window} other
 * @param {string} origin of that window: nobody else gets anything
 * @param {{buffer: ArrayBuffer, title: string, fileName: string}} trace
 * @param {number} [patience] milliseconds
 * @returns {Promise<"given" | "closed" | "silent">}
 */
export function handOver(other, origin, trace, patience = PATIENCE_MS) {
  return new Promise((resolve) => {
    const begun = performance.now();
    const end = (/** @type {"given" | "closed" | "silent"} */ how) => {
      clearInterval(calling);
      removeEventListener("message", listen);
      resolve(how);
    };
    const listen = (/** @type {MessageEvent} */ event) => {
      if (event.source !== other || event.origin !== origin || event.data !== "PONG") return;
      other.postMessage({ perfetto: { ...trace, localOnly: true } }, origin, [trace.buffer]);
      end("given");
    };
    const call = () => {
      if (other.closed) end("closed");
      else if (performance.now() - begun > patience) end("silent");
      else other.postMessage("PING", origin);
    };
    const calling = setInterval(call, CALL_MS);
    addEventListener("message", listen);
    call();
  });
}

/**
 * Reads an answer to its end and says how far it is.
 * @param {string} address
 * @param {(read: number) => void} told
 * @param {AbortSignal} signal
 */
async function fetchAll(address, told, signal) {
  const response = await fetch(address, { signal, credentials: "same-origin" });
  if (!response.ok) {
    const reason = await response.json().catch(() => null);
    throw new Error(reason?.error ?? `${response.status} ${response.statusText}`);
  }
  const reader = response.body?.getReader();
  /** @type {Uint8Array[]} */
  const parts = [];
  let read = 0;
  for (;;) {
    const part = await reader?.read();
    if (!part || part.done) break;
    parts.push(part.value);
    read += part.value.length;
    told(read);
  }
  const all = new Uint8Array(read);
  let at = 0;
  for (const part of parts) {
    all.set(part, at);
    at += part.length;
  }
  return { buffer: all.buffer, name: /filename="([^"]*)"/.exec(response.headers.get("Content-Disposition") ?? "")?.[1] ?? "trace" };
}

/** @type {HTMLDialogElement | null} */
let dialog = null;

/**
 * Fetches a trace and offers to open it. Browsers open windows only while somebody clicks, and the trace has to be there before
 * the window is: so there is a button, unless it was quick.
 * @param {{address: string, ui: string, title: string}} wanted
 */
export async function openInPerfetto({ address, ui, title }) {
  dialog?.close();
  const origin = new URL(ui).origin;
  const abort = new AbortController();
  const said = h("p", { role: "status" }, "Writing the trace …");
  const open = h("button", { type: "button", class: "p-button", disabled: true }, "Open Perfetto");
  const close = h("button", { type: "button", class: "p-close", "aria-label": "Close" }, "×");
  const made = h("dialog", { class: "p-dialog p-perfetto", "aria-labelledby": "p-perfetto-title" },
    h("header", { class: "p-dialoghead" }, h("h2", { id: "p-perfetto-title" }, "Open in Perfetto"), close),
    h("div", { class: "p-perfettobody" }, said,
      h("p", { class: "p-faint" }, `The trace goes from this page to a window of ${origin} in this browser, and nowhere else.`), open));
  close.addEventListener("click", () => made.close());
  made.addEventListener("close", () => {
    abort.abort();
    made.remove();
    if (dialog === made) dialog = null;
  });
  dialog = made;
  document.body.append(made);
  made.showModal();
  /** @type {Awaited<ReturnType<typeof fetchAll>>} */
  let trace;
  try {
    trace = await fetchAll(address, (read) => { said.textContent = `Writing the trace … ${bytes(read)}`; }, abort.signal);
  } catch (error) {
    if (!abort.signal.aborted) said.textContent = `The trace could not be written: ${/** @type {Error} */ (error).message}`;
    return;
  }
  const go = async () => {
    const other = window.open(new URL("#!/", ui).href);
    if (!other) {
      said.textContent = "The browser kept the window from opening: allow this page to open windows, and try again.";
      return;
    }
    open.disabled = true;
    said.textContent = "Waiting for Perfetto …";
    const how = await handOver(other, origin, { buffer: trace.buffer, title, fileName: trace.name });
    if (how === "given") {
      made.close();
      // A page behind another hears of that only when it is in front again.
      made.remove();
    } else said.textContent = how === "closed" ? "Its window was closed before it had the trace." : `No Perfetto answers at ${origin}.`;
    if (how !== "given") open.disabled = false;
  };
  said.textContent = `The trace is written: ${bytes(trace.buffer.byteLength)}.`;
  open.disabled = false;
  open.addEventListener("click", () => void go());
  open.focus();
  if (navigator.userActivation?.isActive) void go();
}
