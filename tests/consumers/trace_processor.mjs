// Perfetto's trace processor, compiled to WebAssembly, without the page that it is made for.
//
//   node trace_processor.mjs TRACE_PROCESSOR.wasm TRACE < queries.json
//
// `queries.json` is a list of SQL texts. The answer, on standard output, is one JSON object: {"version": "...", "answers":
// [{"columns": [...], "rows": [[...], ...]}, ...]}, or {"error": "..."} with what the trace processor said of the trace. Integers
// are written with all their digits.
//
// The module exports two functions: one is told of a buffer and of a function for replies, the other that the buffer holds
// so many bytes of requests. Both directions are messages of Perfetto's trace_processor.proto.

import fs from 'node:fs';

const decoder = new TextDecoder();
const encoder = new TextEncoder();

// --- Protocol Buffers, as far as these messages go.

function varint(number) {
  const bytes = [];
  let rest = BigInt.asUintN(64, BigInt(number));
  do {
    const low = Number(rest & 0x7fn);
    rest >>= 7n;
    bytes.push(rest > 0n ? low | 0x80 : low);
  } while (rest > 0n);
  return bytes;
}

function joined(parts) {
  const whole = new Uint8Array(parts.reduce((length, part) => length + part.length, 0));
  let at = 0;
  for (const part of parts) {
    whole.set(part, at);
    at += part.length;
  }
  return whole;
}

const numberField = (field, value) => joined([varint(field << 3), varint(value)]);
const bytesField = (field, bytes) => joined([varint((field << 3) | 2), varint(bytes.length), bytes]);

/** Reads numbers and fields from bytes. */
class Reader {
  constructor(bytes) {
    this.bytes = bytes;
    this.at = 0;
  }

  get more() {
    return this.at < this.bytes.length;
  }

  varint() {
    let value = 0n;
    for (let shift = 0n; ; shift += 7n) {
      const byte = this.bytes[this.at++];
      value |= BigInt(byte & 0x7f) << shift;
      if (byte < 0x80) return value;
    }
  }

  take(length) {
    this.at += length;
    return this.bytes.subarray(this.at - length, this.at);
  }

  /** All fields as [number, value]: a BigInt or bytes. */
  *fields() {
    while (this.more) {
      const tag = Number(this.varint());
      const kind = tag & 7;
      if (kind === 0) yield [tag >> 3, this.varint()];
      else if (kind === 1) yield [tag >> 3, this.take(8)];
      else if (kind === 2) yield [tag >> 3, this.take(Number(this.varint()))];
      else if (kind === 5) yield [tag >> 3, this.take(4)];
      else throw new Error(`a reply has a field of kind ${kind}`);
    }
  }
}

const fieldsOf = (bytes) => new Reader(bytes).fields();

// --- The module.

/** A module with one function, which only calls what it was given: functions of tables must be WebAssembly's own. */
function tableFunction(call) {
  const bytes = Uint8Array.from([
    0x00, 0x61, 0x73, 0x6d, 1, 0, 0, 0, // magic and version
    1, 6, 1, 0x60, 2, 0x7f, 0x7f, 0, // type 0: (i32, i32) -> ()
    2, 7, 1, 1, 0x6d, 1, 0x66, 0, 0, // import "m" "f", of type 0
    7, 5, 1, 1, 0x66, 0, 0, // export it as "f"
  ]);
  return new WebAssembly.Instance(new WebAssembly.Module(bytes), { m: { f: call } }).exports.f;
}

class TraceProcessor {
  static #requestBytes = 1 << 24;
  #exports;
  #request;
  #sequence = 0;
  #replies = [];
  #said = '';

  constructor(wasm) {
    const module = new WebAssembly.Module(fs.readFileSync(wasm));
    const known = this.#environment();
    const imports = {};
    for (const { module: from, name } of WebAssembly.Module.imports(module)) {
      imports[from] ??= {};
      // Files and memory maps are refused (ENOSYS); the rest has nothing to do here.
      const refused = name.startsWith('__syscall') || name.startsWith('_m') ? -52 : 0;
      imports[from][name] = known[name] ?? (() => refused);
    }
    this.#exports = new WebAssembly.Instance(module, imports).exports;
    this.#exports.emscripten_stack_init?.();
    this.#exports.__wasm_call_ctors();
    const table = this.#exports.__indirect_function_table;
    const place = table.length;
    table.grow(1);
    table.set(
      place,
      tableFunction((at, length) => {
        at >>>= 0;
        this.#replies.push(this.#memory().slice(at, at + length));
      }),
    );
    this.#request = this.#exports.trace_processor_rpc_init(place, TraceProcessor.#requestBytes) >>> 0;
  }

  #memory() {
    return new Uint8Array(this.#exports.memory.buffer);
  }

  #view() {
    return new DataView(this.#exports.memory.buffer);
  }

  #text(at) {
    const memory = this.#memory();
    at >>>= 0;
    return decoder.decode(memory.subarray(at, memory.indexOf(0, at)));
  }

  /** What the module asks of its surroundings. */
  #environment() {
    const ends = (what) => () => {
      throw new Error(`${what}: ${this.#said.slice(-2000)}`);
    };
    const nothing = (count, bytes) => {
      this.#view().setUint32(count >>> 0, 0, true);
      this.#view().setUint32(bytes >>> 0, 0, true);
      return 0;
    };
    return {
      emscripten_get_now: () => performance.now(),
      emscripten_date_now: () => Date.now(),
      clock_time_get: (clock, _precision, to) => {
        const now = clock === 0 ? BigInt(Date.now()) * 1_000_000n : process.hrtime.bigint();
        this.#view().setBigUint64(to >>> 0, now, true);
        return 0;
      },
      emscripten_get_heap_max: () => 0xffff0000,
      emscripten_resize_heap: (wanted) => {
        const { memory } = this.#exports;
        const now = memory.buffer.byteLength;
        // A fifth more than there is, so that growing happens seldom.
        const next = Math.min(0xffff0000, Math.max(wanted >>> 0, Math.floor(now * 1.2)));
        try {
          memory.grow(Math.ceil((next - now) / 65536));
          return 1;
        } catch {
          return 0;
        }
      },
      environ_sizes_get: nothing,
      environ_get: () => 0,
      _tzset_js: (timezone, daylight, standardName, daylightName) => {
        nothing(timezone, daylight);
        this.#view().setUint8(standardName >>> 0, 0);
        this.#view().setUint8(daylightName >>> 0, 0);
      },
      fd_write: (_file, parts, count, written) => {
        let length = 0;
        for (let part = 0; part < count; part++) {
          const at = this.#view().getUint32((parts >>> 0) + 8 * part, true);
          const size = this.#view().getUint32((parts >>> 0) + 8 * part + 4, true);
          this.#said += decoder.decode(this.#memory().slice(at, at + size));
          length += size;
        }
        this.#view().setUint32(written >>> 0, length, true);
        return 0;
      },
      fd_read: () => 8,
      fd_seek: () => 8,
      fd_sync: () => 8,
      fd_fdstat_get: () => 8,
      emscripten_err: (text) => {
        this.#said += `${this.#text(text)}\n`;
      },
      random_get: (at, length) => {
        crypto.getRandomValues(this.#memory().subarray(at >>> 0, (at >>> 0) + length));
        return 0;
      },
      __assert_fail: (condition, file, line) => {
        throw new Error(`${this.#text(file)}:${line}: ${this.#text(condition)}`);
      },
      __cxa_throw: ends('a C++ exception'),
      _abort_js: ends('aborted'),
      exit: ends('exited'),
      proc_exit: ends('exited'),
    };
  }

  /** Sends a request (`TraceProcessorRpc`) and returns the fields of all replies to it. */
  #ask(method, field, argument) {
    const parts = [numberField(1, this.#sequence++), numberField(2, method)];
    if (field !== undefined) parts.push(bytesField(field, argument));
    const stream = bytesField(1, joined(parts));
    this.#replies = [];
    for (let at = 0; at < stream.length; at += TraceProcessor.#requestBytes) {
      const piece = stream.subarray(at, at + TraceProcessor.#requestBytes);
      this.#memory().set(piece, this.#request);
      this.#exports.trace_processor_on_rpc_request(piece.length);
    }
    const found = [];
    for (const [, message] of fieldsOf(joined(this.#replies))) {
      for (const [number, value] of fieldsOf(message)) {
        if (number === 5) throw new Error(`fatal: ${decoder.decode(value)}`);
        found.push([number, value]);
      }
    }
    return found;
  }

  version() {
    for (const [number, status] of this.#ask(10)) {
      if (number !== 210) continue;
      for (const [inner, value] of fieldsOf(status)) if (inner === 2) return decoder.decode(value);
    }
    return '';
  }

  load(path) {
    const file = fs.openSync(path);
    const piece = Buffer.alloc(1 << 24);
    for (let length; (length = fs.readSync(file, piece)) > 0; ) {
      for (const [number, result] of this.#ask(1, 101, piece.subarray(0, length))) {
        if (number !== 201) continue;
        for (const [inner, value] of fieldsOf(result)) if (inner === 2) throw new Error(decoder.decode(value));
      }
    }
    fs.closeSync(file);
    for (const [number, result] of this.#ask(2)) {
      if (number !== 212) continue;
      for (const [inner, value] of fieldsOf(result)) if (inner === 1) throw new Error(decoder.decode(value));
    }
  }

  query(sql) {
    const columns = [];
    const cells = [];
    for (const [number, result] of this.#ask(3, 103, bytesField(1, encoder.encode(sql)))) {
      if (number !== 203) continue;
      for (const [inner, value] of fieldsOf(result)) {
        if (inner === 1) columns.push(decoder.decode(value));
        else if (inner === 2 && value.length > 0) throw new Error(`${decoder.decode(value)} in: ${sql}`);
        else if (inner === 3) cells.push(...batch(value));
      }
    }
    const rows = [];
    for (let at = 0; at < cells.length; at += columns.length) rows.push(cells.slice(at, at + columns.length));
    return { columns, rows };
  }
}

/** The cells of a `CellsBatch`: their types, and then the values of each type together. */
function batch(bytes) {
  const types = [];
  const values = { 2: [], 3: [], 4: [], 5: [] };
  for (const [number, value] of fieldsOf(bytes)) {
    if (number === 1) {
      if (typeof value === 'bigint') types.push(Number(value));
      else types.push(...value);
    } else if (number === 2) {
      if (typeof value === 'bigint') values[2].push(BigInt.asIntN(64, value));
      else for (const list = new Reader(value); list.more; ) values[2].push(BigInt.asIntN(64, list.varint()));
    } else if (number === 3) {
      const view = new DataView(value.buffer, value.byteOffset, value.length);
      for (let at = 0; at < value.length; at += 8) values[3].push(view.getFloat64(at, true));
    } else if (number === 4) {
      values[5].push(`(${value.length} bytes)`);
    } else if (number === 5) {
      values[4].push(...decoder.decode(value).split('\0'));
    }
  }
  const next = { 2: 0, 3: 0, 4: 0, 5: 0 };
  return types.map((type) => (type === 1 ? null : values[type][next[type]++]));
}

/** JSON, but integers with all their digits. */
function toJson(value) {
  if (typeof value === 'bigint') return value.toString();
  if (typeof value === 'number' && !Number.isFinite(value)) return `"${value}"`;
  if (Array.isArray(value)) return `[${value.map(toJson).join(',')}]`;
  if (value !== null && typeof value === 'object') {
    const members = Object.entries(value).map(([key, member]) => `${JSON.stringify(key)}:${toJson(member)}`);
    return `{${members.join(',')}}`;
  }
  return JSON.stringify(value);
}

const [, , wasm, trace] = process.argv;
let answer;
try {
  const queries = JSON.parse(fs.readFileSync(0, 'utf8'));
  const processor = new TraceProcessor(wasm);
  processor.load(trace);
  answer = { version: processor.version(), answers: queries.map((sql) => processor.query(sql)) };
} catch (error) {
  answer = { error: String(error.message ?? error) };
}
fs.writeSync(1, `${toJson(answer)}\n`);
