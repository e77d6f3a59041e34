// Opens a page of a report in Chromium: node page.mjs FILE.html WIDTH light|dark SHOT.png. Prints what it saw as JSON.
import path from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";

const here = path.dirname(fileURLToPath(import.meta.url));
const { default: puppeteer } = await import(
  pathToFileURL(path.join(here, "node_modules/puppeteer-core/lib/esm/puppeteer/puppeteer-core.js"))
);
const [file, width, scheme, shot] = process.argv.slice(2);
const browser = await puppeteer.launch({
  executablePath: process.env.OPCOMPAT_CHROMIUM ?? "/usr/bin/chromium",
  headless: true,
  args: ["--no-sandbox", "--disable-dev-shm-usage"],
  protocolTimeout: 120_000,
});
try {
  const page = await browser.newPage();
  const [messages, requests] = [[], []];
  page.on("console", (message) => messages.push(message.text()));
  page.on("pageerror", (error) => messages.push(String(error)));
  page.on("request", (request) => requests.push(request.url()));
  await page.emulateMediaFeatures([{ name: "prefers-color-scheme", value: scheme }]);
  await page.setViewport({ width: Number(width), height: 900, isMobile: Number(width) < 600 });
  await page.goto(pathToFileURL(file).href, { waitUntil: "load", timeout: 60_000 });
  const seen = await page.evaluate(() => {
    const visible = (selector) =>
      [...document.querySelectorAll(selector)].filter((e) => e.checkVisibility() && e.getBoundingClientRect().width > 0).length;
    const size = (e) => Number.parseFloat(getComputedStyle(e).fontSize);
    return {
      plots: visible("figure.errors svg polyline"),
      margins: visible("figure.margins svg rect"),
      matrix: visible("section.matrix td.cell"),
      findings: visible(".finding"),
      heat: visible("td.cell.native"),
      sides: visible("details.rule > summary"),
      scroll: document.documentElement.scrollWidth,
      inner: window.innerWidth,
      background: getComputedStyle(document.body).backgroundColor,
      text: size(document.querySelector("p")),
      plotText: Math.min(
        ...[...document.querySelectorAll("svg text")].map((e) => size(e) * (e.getScreenCTM()?.a ?? 1)),
      ),
    };
  });
  await page.screenshot({ path: shot, fullPage: seen.findings < 500 });
  process.stdout.write(JSON.stringify({ ...seen, messages, requests }));
} finally {
  await browser.close();
}
