// Runs one .tflite model in TF.js, by its TFLite package.

import { at, decode, encode } from "./wire.mjs";

export async function runner(tf, tflite, wasm) {
  await tf.setBackend("cpu");
  tflite.setWasmPath(wasm);
  return async ({ model, inputs, outputs }) => {
    const loaded = await at("load", () => tflite.loadTFLiteModel(decode(model).buffer, { numThreads: 1 }));
    // Integers of any width are int32 tensors; a model's tensors have names of their own, so order tells which is which.
    const feeds = await at("feed", () => loaded.inputs.map(({ name }) => tensor(tf, inputs[name])));
    const results = await at("run", () => loaded.predict(feeds));
    return at("read", async () => {
      const found = [];
      for (const x of results instanceof tf.Tensor ? [results] : Object.values(results)) {
        found.push(encode(x.dtype, x.shape, await x.data()));
        x.dispose();
      }
      tf.dispose(feeds);
      return found;
    });
  };
}

function tensor(tf, x) {
  const dtype = ["float32", "bool"].includes(x.dtype) ? x.dtype : "int32";
  const array = decode(x);
  return tf.tensor(dtype === "int32" ? Int32Array.from(array) : array, x.shape, dtype);
}
