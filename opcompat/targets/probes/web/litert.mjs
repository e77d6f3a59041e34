// Runs one model in LiteRT.js.

import { at, decode, encode } from "./wire.mjs";

export function runner(litert) {
  return async ({ model, inputs, outputs }) => {
    const compiled = await at("load", () => litert.loadAndCompile(decode(model), { accelerator: "wasm" }));
    try {
      const feeds = {};
      for (const [name, x] of Object.entries(inputs)) feeds[name] = await at("feed", () => new litert.Tensor(decode(x), x.shape));
      const results = await at("run", () => compiled.run("main", feeds));
      return await at("read", async () => {
        const found = [];
        for (const name of outputs) {
          const { dtype, layout } = results[name].type;
          found.push(encode(dtype, layout.dimensions, results[name].toTypedArray()));
        }
        for (const x of [...Object.values(feeds), ...Object.values(results)]) if (!x.deleted) x.delete();
        return found;
      });
    } finally {
      compiled.delete();
    }
  };
}
