// Opens the pages of `agentsh ui` in a real browser: LINK DIRECTORY CHROMIUM PATH...
// Prints one JSON object: what axe finds serious, what is wider than the window, what the console said, and whether an approval
// that waits can be given with the keyboard alone.
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";
import { chromium } from "playwright-core";

const [link, directory, executablePath, ...paths] = process.argv.slice(2);
const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const origin = new URL(link).origin;
const found = { serious: [], wide: [], console: [], seen: 0, live: null, keyboard: null };

const browser = await chromium.launch({ executablePath, args: ["--no-sandbox", "--disable-gpu"] });
const context = await browser.newContext({ bypassCSP: false });
const page = await context.newPage();
page.on("console", (message) => {
  if (message.type() === "error") found.console.push(message.text());
});
page.on("pageerror", (error) => found.console.push(String(error)));
await page.goto(link);
await page.waitForURL(origin + "/");

// `go` brings the page, where it is not there yet.
const look = async (path, scheme, width, go) => {
  await page.setViewportSize({ width, height: 900 });
  await page.emulateMedia({ colorScheme: scheme });
  await go();
  const where = `${path} ${scheme} ${width}`;
  const name = `${path.replaceAll(/[^a-z0-9]+/gi, "_")}-${scheme}-${width}.png`;
  await page.screenshot({ path: join(directory, name), fullPage: true });
  const room = await page.evaluate(() => [document.documentElement.scrollWidth, document.documentElement.clientWidth]);
  if (room[0] > room[1]) found.wide.push(`${where}: ${room[0]} in ${room[1]}`);
  // The page allows no script but its own; the debugger may add one.
  await page.evaluate(axe);
  const { violations } = await page.evaluate(() => window.axe.run(document, { resultTypes: ["violations"] }));
  for (const { id, impact, nodes } of violations) {
    if (impact === "serious" || impact === "critical") {
      found.serious.push(`${where}: ${id}: ${nodes.length} such as ${nodes[0].html.slice(0, 160)}`);
    }
  }
  found.seen += 1;
};

const lookAt = async (path, go) => {
  for (const scheme of ["light", "dark"]) {
    for (const width of [1280, 400]) await look(path, scheme, width, go);
  }
};
for (const path of paths) {
  await lookAt(path, () => page.goto(origin + path, { waitUntil: "domcontentloaded" }));
}

// What waits now is answered without a mouse, and the page shows that it is gone without being loaded again.
await page.goto(origin + "/approvals");
const button = page.getByRole("button", { name: /^Approve once/ });
if (await button.count()) {
  for (let tabs = 0; tabs < 60; tabs += 1) {
    await page.keyboard.press("Tab");
    const focused = await page.evaluate(() => document.activeElement?.value);
    if (focused === "once") break;
  }
  await page.keyboard.press("Enter");
  await page.waitForURL(/\/approvals\?answered=.+/, { timeout: 20000 });
  found.keyboard = await page.locator("#said").innerText();
  await lookAt("/approvals?answered", async () => {});
  await page.goto(origin + "/");
  await page.getByText("No session runs.").waitFor({ timeout: 20000 });
  found.live = true;
}
await browser.close();
console.log(JSON.stringify(found));
