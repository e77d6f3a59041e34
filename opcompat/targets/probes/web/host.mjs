// Runs one-op models for opcompat's probes: `node host.mjs ENGINE`. A request is a list of {model, inputs, outputs}, an
// answer a list of {outputs} or {error, stage}, arrays as in wire.mjs.

import path from "node:path";
import { pathToFileURL } from "node:url";

import { launch, packageFolder, serve, version } from "./browser.mjs";
import { answerLines } from "./lines.mjs";
import { answered, broken } from "./wire.mjs";

async function inNode() {
  const ort = await import(pathToFileURL(path.join(packageFolder("onnxruntime-web"), "dist/ort.node.min.mjs")));
  const { runner } = await import("./ort.mjs");
  const run = runner(ort, { executionProviders: ["wasm"] });
  const many = async (requests) => {
    const answers = [];
    for (const request of requests) answers.push(await answered(run, request));
    return answers;
  };
  return { many, where: `node ${process.version}` };
}

const FRESH = 500; // models that one page runs: runtimes leak some memory with each

async function inBrowser(engine, packages) {
  const mounts = { "/": import.meta.dirname };
  for (const name of packages) mounts[`/node_modules/${name}/`] = packageFolder(name);
  const server = await serve(mounts);
  const browser = await launch({ gpu: engine === "onnxruntime-web-webgpu" });
  process.on("exit", () => browser.process()?.kill("SIGKILL"));
  let page, uses;

  async function open() {
    await page?.close().catch(() => {});
    page = await browser.newPage();
    uses = 0;
    await page.goto(`${server.url}/engine.html?engine=${engine}`);
    await page.waitForFunction("window.ready !== undefined", { timeout: 60_000 });
    const ready = await page.evaluate("window.ready");
    if (ready !== "ok") throw new Error(ready);
  }

  // The page stops at a model that breaks its runtime. If the page itself dies, its models are run one by one.
  async function many(requests) {
    const answers = [];
    let together = requests.length;
    while (answers.length < requests.length) {
      if (uses > FRESH) await open();
      const asked = requests.slice(answers.length, answers.length + together);
      uses += asked.length;
      const got = await page.evaluate((r) => window.many(r), asked).catch(() => undefined);
      if (got) answers.push(...got);
      else if (together === 1) answers.push({ error: "crashes the page", stage: "run" });
      if (!got) together = 1;
      if (!got || broken(got.at(-1))) await open();
    }
    return answers;
  }

  await open();
  return { many, where: await browser.version() };
}

// The package that gives the version first.
const PACKAGES = {
  "onnxruntime-web": ["onnxruntime-web"],
  "onnxruntime-web-webgpu": ["onnxruntime-web"],
  "litert-web": ["@litertjs/core", "@litertjs/wasm-utils"],
  "tfjs": ["@tensorflow/tfjs-tflite", "@tensorflow/tfjs"],
};

const engine = process.argv[2];
const packages = PACKAGES[engine];
let made, ready;
try {
  made = await (engine === "onnxruntime-web" ? inNode() : inBrowser(engine, packages));
  ready = { version: await version(packages[0]), where: made.where };
} catch (error) {
  ready = { problem: error.message };
}
await answerLines(ready, (requests) => made.many(requests));
process.exit(0);
