// Arrays as they travel between Python and JavaScript: {dtype, shape, data}, data in base64, little-endian.

export const ARRAYS = {
  float32: Float32Array, float64: Float64Array, float16: Uint16Array, bfloat16: Uint16Array,
  int8: Int8Array, int16: Int16Array, int32: Int32Array, int64: BigInt64Array,
  uint8: Uint8Array, uint16: Uint16Array, uint32: Uint32Array, uint64: BigUint64Array, bool: Uint8Array,
};

export function bytes(text) {
  return Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
}

export function text(array) {
  const view = new Uint8Array(array.buffer, array.byteOffset, array.byteLength);
  let out = "";
  for (let i = 0; i < view.length; i += 8192) out += String.fromCharCode(...view.subarray(i, i + 8192));
  return btoa(out);
}

export function decode({ dtype, data }) {
  return new ARRAYS[dtype](bytes(data).buffer);
}

export function encode(dtype, shape, array) {
  return { dtype, shape: [...shape], data: text(array) };
}

// What was thrown, in one string: wasm may throw a bare number.
export function message(error) {
  return String(error?.message ?? error);
}

// A step's result; what it throws says at which stage.
export async function at(stage, step) {
  try {
    return await step();
  } catch (error) {
    throw Object.assign(new Error(message(error)), { stage });
  }
}

export async function answered(run, request) {
  try {
    return { outputs: await run(request) };
  } catch (error) {
    return { error: message(error), stage: error?.stage ?? "run" };
  }
}

// A runtime that aborts stays broken.
export function broken(answer) {
  return /abort|unreachable|out of bounds|memory access|^\d+$/i.test(answer.error ?? "");
}
