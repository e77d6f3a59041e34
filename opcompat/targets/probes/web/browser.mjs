// Headless Chromium on pages of this machine, and nothing else: a server on the loopback address, with the headers that
// threads in wasm need.

import { existsSync } from "node:fs";
import fs from "node:fs/promises";
import http from "node:http";
import { createRequire } from "node:module";
import path from "node:path";
import { pathToFileURL } from "node:url";

const TYPES = {
  ".html": "text/html", ".js": "text/javascript", ".mjs": "text/javascript",
  ".wasm": "application/wasm", ".json": "application/json",
};

// Where npm packages are looked for: the folder `node_modules` of the working directory, or NODE_PATH.
export function packageFolder(name) {
  const roots = [path.resolve("node_modules"), ...(process.env.NODE_PATH ?? "").split(path.delimiter).filter(Boolean)];
  const require = createRequire(import.meta.url);
  for (const root of roots) {
    try {
      return path.dirname(require.resolve(path.join(root, name, "package.json")));
    } catch {
      continue;
    }
  }
  throw new Error(`the npm package ${name} is not in ${roots.join(" or ")}`);
}

export async function version(name) {
  return JSON.parse(await fs.readFile(path.join(packageFolder(name), "package.json"), "utf8")).version;
}

// Serves folders: `mounts` maps "/prefix/" to a folder.
export async function serve(mounts) {
  const answer = async (request, response) => {
    const url = decodeURIComponent(new URL(request.url, "http://localhost").pathname);
    const prefix = Object.keys(mounts).filter((p) => url.startsWith(p)).sort((a, b) => b.length - a.length)[0];
    const file = prefix && path.join(mounts[prefix], path.normalize(`/${url.slice(prefix.length)}`));
    const content = file && (await fs.readFile(file).catch(() => undefined));
    response.writeHead(content ? 200 : 404, {
      "content-type": TYPES[path.extname(file ?? "")] ?? "application/octet-stream",
      "Cross-Origin-Opener-Policy": "same-origin",
      "Cross-Origin-Embedder-Policy": "require-corp",
    });
    response.end(content ?? "");
  };
  const server = http.createServer(answer);
  await new Promise((done) => server.listen(0, "127.0.0.1", done));
  return { url: `http://127.0.0.1:${server.address().port}`, close: () => server.close() };
}

// The browser that OPCOMPAT_CHROMIUM names, or the first that is on PATH.
export function chromium() {
  if (process.env.OPCOMPAT_CHROMIUM) return process.env.OPCOMPAT_CHROMIUM;
  const names = ["chromium", "chromium-browser", "google-chrome"];
  const places = (process.env.PATH ?? "").split(path.delimiter).flatMap((folder) => names.map((n) => path.join(folder, n)));
  const found = places.find((place) => existsSync(place));
  if (!found) throw new Error(`there is no ${names.join(", ")} on PATH`);
  return found;
}

// WebGPU without a graphics card: Chromium's software renderer.
const SOFTWARE_GPU = [
  "--enable-unsafe-webgpu", "--use-webgpu-adapter=swiftshader", "--enable-features=Vulkan", "--ignore-gpu-blocklist",
];

export async function launch({ gpu = false } = {}) {
  const entry = path.join(packageFolder("puppeteer-core"), "lib/esm/puppeteer/puppeteer-core.js");
  const { default: puppeteer } = await import(pathToFileURL(entry));
  return puppeteer.launch({
    executablePath: chromium(),
    headless: true,
    args: ["--no-sandbox", "--disable-dev-shm-usage", ...(gpu ? SOFTWARE_GPU : [])],
    protocolTimeout: 120_000,
  });
}
