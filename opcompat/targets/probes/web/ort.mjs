// Runs one model in onnxruntime-web.

import { ARRAYS, at, decode, encode, message } from "./wire.mjs";

// What ONNX Runtime says, without its codes.
function plain(said) {
  if (/fallback to CPU EP has been explicitly disabled|IsNodeCompatibleWithProvider/.test(said)) return "no WebGPU kernel";
  return said.replace(/^.*?ERROR_MESSAGE: /s, "").replace(/^Non-zero status code.*?Status Message: /s, "");
}

// `options`: those of InferenceSession.create.
export function runner(ort, options) {
  ort.env.wasm.numThreads = 1;
  ort.env.logLevel = "fatal";
  return (request) =>
    run(ort, options, request).catch((error) => {
      throw Object.assign(new Error(plain(message(error))), { stage: error.stage });
    });
}

async function run(ort, options, { model, inputs, outputs }) {
  const session = await at("load", () => ort.InferenceSession.create(decode(model), { logSeverityLevel: 4, ...options }));
  try {
    const feeds = {};
    for (const [name, x] of Object.entries(inputs)) feeds[name] = await at("feed", () => tensor(ort, x));
    const results = await at("run", () => session.run(feeds));
    return await at("read", () =>
      Promise.all(outputs.map(async (name) => encode(results[name].type, results[name].dims, await array(results[name])))),
    );
  } finally {
    await session.release().catch(() => {});
  }
}

// float16 is a Float16Array where JavaScript has it, and its bits in a Uint16Array where it does not.
function tensor(ort, x) {
  const bits = decode(x);
  const half = x.dtype === "float16" && typeof Float16Array !== "undefined";
  return new ort.Tensor(x.dtype, half ? new Float16Array(bits.buffer) : bits, x.shape);
}

async function array(result) {
  const data = await result.getData();
  return ARRAYS[result.type] ? data : Promise.reject(new Error(`no form of ${result.type}`));
}
