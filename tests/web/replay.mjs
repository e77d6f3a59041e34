// Runs examples/web/policy.mjs for test_example.py: `node replay.mjs node|browser BUNDLE ENTRY_POINT`.
// A request {inputs, loop} is one call: with `loop`, of the closed loop, which keeps its state.

import fs from "node:fs/promises";
import path from "node:path";
import { pathToFileURL } from "node:url";

import { launch, packageFolder, serve } from "../../opcompat/targets/probes/web/browser.mjs";
import { answerLines } from "../../opcompat/targets/probes/web/lines.mjs";

const [where, bundle, entryPoint] = process.argv.slice(2);
const here = import.meta.dirname;
const mounts = {
  "/": path.join(here, "../../examples/web"),
  "/wire/": path.join(here, "../../opcompat/targets/probes/web"),
  "/tests/": here,
  "/dist/": bundle,
  "/node_modules/onnxruntime-web/": packageFolder("onnxruntime-web"),
};

async function inNode() {
  const ort = await import(pathToFileURL(path.join(packageFolder("onnxruntime-web"), "dist/ort.node.min.mjs")));
  ort.env.wasm.numThreads = 1;
  const { caller } = await import("./caller.mjs");
  return caller(ort, (file) => fs.readFile(path.join(bundle, file)).then((b) => new Uint8Array(b)), entryPoint);
}

async function inBrowser() {
  const server = await serve(mounts);
  const browser = await launch();
  process.on("exit", () => browser.process()?.kill("SIGKILL"));
  const page = await browser.newPage();
  await page.goto(`${server.url}/index.html?steps=5`);
  await page.waitForFunction("document.body.dataset.done", { timeout: 60_000 });
  const shown = await page.evaluate(() => `${document.body.dataset.done}: ${document.body.innerText}`);
  await page.evaluate(async (name) => {
    const ort = await import("/node_modules/onnxruntime-web/dist/ort.wasm.min.mjs");
    const { caller } = await import("/tests/caller.mjs");
    const read = async (file) => new Uint8Array(await (await fetch(`/dist/${file}`)).arrayBuffer());
    window.call = await caller(ort, read, name);
  }, entryPoint);
  return Object.assign((request) => page.evaluate((r) => window.call(r), request), { shown });
}

const call = await (where === "node" ? inNode() : inBrowser());
await answerLines({ ready: where, shown: call.shown ?? "" }, call);
process.exit(0);
