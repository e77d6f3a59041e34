// Calls a policy with arrays that come from Python; in node and in the page of replay.mjs.

const served = typeof window !== "undefined";
const { decode, encode, message } = await import(served ? "/wire/wire.mjs" : "../../opcompat/targets/probes/web/wire.mjs");
const { Policy } = await import(served ? "/policy.mjs" : "../../examples/web/policy.mjs");

export async function caller(ort, read, name) {
  const policy = await Policy.load(ort, read, name);
  return async ({ inputs, loop }) => {
    const arrays = Object.fromEntries(Object.entries(inputs).map(([k, v]) => [k, decode(v)]));
    try {
      const outputs = await (loop ? policy.step(arrays) : policy.run(arrays));
      return {
        outputs: Object.fromEntries(
          policy.entryPoint.outputs.map((x) => [x.name, encode(x.file_dtype, x.shape, outputs[x.name])]),
        ),
      };
    } catch (error) {
      return { error: message(error) };
    }
  };
}
