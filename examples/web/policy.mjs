// A policy from an opcompat bundle, in a browser or in node, on onnxruntime-web. Names, dtypes, first states and
// feedback stand in the bundle's manifest.json: nothing here knows the policy.

export class Policy {
  // ort: onnxruntime-web. read(path): a promise of the Uint8Array that is in this file of the bundle.
  static async load(ort, read, name = "policy") {
    const manifest = JSON.parse(new TextDecoder().decode(await read("manifest.json")));
    const weights = manifest.formats.onnx.weights;
    const externalData = weights ? [{ path: weights.split("/").pop(), data: await read(weights) }] : [];
    const open = async (entryPoint) => {
      const model = await read(manifest.formats.onnx.files[entryPoint]);
      return ort.InferenceSession.create(model, { executionProviders: ["wasm"], externalData });
    };
    const sessions = { [name]: await open(name) };
    for (const { output } of Object.values(manifest.entry_points[name].init)) {
      const first = output?.split(".")[0];
      if (first) sessions[first] ??= await open(first);
    }
    return new Policy(ort, manifest, sessions, name);
  }

  constructor(ort, manifest, sessions, name) {
    Object.assign(this, { ort, manifest, sessions, name, state: undefined });
  }

  get entryPoint() {
    return this.manifest.entry_points[this.name];
  }

  // Runs an entry point once: typed arrays by input name -> typed arrays by output name. Keys are Uint32Arrays.
  async run(arrays, name = this.name) {
    const feeds = {};
    for (const { name: input, file_dtype, shape } of this.manifest.entry_points[name].inputs) {
      if (!(input in arrays)) throw new Error(`${name} takes ${input}, ${file_dtype}[${shape}]`);
      feeds[input] = new this.ort.Tensor(file_dtype, arrays[input], shape);
    }
    const results = await this.sessions[name].run(feeds);
    const inFile = this.manifest.formats.onnx.outputs?.[name] ?? {};
    return Object.fromEntries(
      this.manifest.entry_points[name].outputs.map((x) => [x.name, results[inFile[x.name] ?? x.name].data]),
    );
  }

  // The first state: outputs of the entry points that the manifest names. `arrays`: what those take, if anything.
  async reset(arrays = {}) {
    this.state = {};
    for (const [input, { output, file }] of Object.entries(this.entryPoint.init)) {
      if (file) throw new Error(`${input} begins with what is recorded in ${file}: put that into policy.state`);
      const [first, ...leaf] = output.split(".");
      this.state[input] = (await this.run(arrays, first))[leaf.join(".")];
    }
  }

  // One step of the closed loop: what the manifest feeds back is kept for the next step.
  async step(arrays) {
    if (!this.state) await this.reset();
    const outputs = await this.run({ ...this.state, ...arrays });
    for (const [output, input] of Object.entries(this.entryPoint.feedback)) this.state[input] = outputs[output];
    return outputs;
  }
}
