// The official clients in a real browser, through a gateway: URL KEY PORT CHROMIUM. The page that uses them is served at PORT of this
// machine, which is another origin than the gateway's. Prints one JSON object: what each client saw, and what the browser complained about.
import { createServer } from "node:http";
import { build } from "esbuild";
import { chromium } from "playwright-core";

const [url, key, port, executablePath] = process.argv.slice(2);
const CLIENTS = {
  one: `import { Client } from "@modelcontextprotocol/sdk/client/index.js";
    import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";`,
  two: `import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";`,
};
const PAGE = `
const seen = { progress: [], errors: [] };
globalThis.look = async (url, key) => {
  const client = new Client({ name: "page", version: "1" }, { capabilities: { roots: {} } });
  client.onerror = (error) => seen.errors.push(String(error));
  const changed = new Promise((resolve) => { client.fallbackNotificationHandler = (message) => resolve(message.method); });
  const requestInit = { headers: { Authorization: "Bearer " + key } };
  const transport = new StreamableHTTPClientTransport(new URL(url), { requestInit });
  await client.connect(transport);
  seen.session = transport.sessionId;
  seen.tools = (await client.listTools()).tools.map((tool) => tool.name);
  const call = (name, args, options) => client.callTool({ name, arguments: args }, ...(globalThis.isOne ? [undefined, options] : [options]));
  seen.text = (await call("echo", { text: "from a page" })).content[0].text;
  seen.refused = await call("no_such_tool", {}).then((result) => result, (error) => String(error));
  await call("slow", {}, { onprogress: (step) => seen.progress.push(step.progress) });
  // By the stream that belongs to no request.
  await call("change", {});
  seen.changed = await Promise.race([changed, new Promise((resolve) => setTimeout(resolve, 10000, "nothing"))]);
  await transport.terminateSession();
  seen.after = await fetch(url, { method: "POST", headers: { Authorization: "Bearer " + key, "Content-Type": "application/json",
    Accept: "application/json, text/event-stream", "Mcp-Session-Id": seen.session }, body: '{"jsonrpc":"2.0","id":9,"method":"ping"}' })
    .then((answer) => answer.status);
  seen.head = await fetch(url, { method: "HEAD", headers: { Authorization: "Bearer " + key } }).then((answer) => answer.status);
  await client.close();
  return seen;
};`;

const scripts = {};
for (const [name, imports] of Object.entries(CLIENTS)) {
  const contents = imports + `globalThis.isOne = ${name === "one"};` + PAGE;
  const bundled = await build({ stdin: { contents, resolveDir: import.meta.dirname }, bundle: true, format: "iife", write: false });
  scripts[`/${name}.js`] = bundled.outputFiles[0].text;
}
const server = createServer((asked, answer) => {
  const script = scripts[asked.url];
  answer.setHeader("Content-Type", script ? "text/javascript" : "text/html");
  answer.end(script ?? `<!doctype html><title>page</title><script src="${asked.url.slice(1) || "one"}.js"></script>`);
});
await new Promise((resolve) => server.listen(Number(port), "127.0.0.1", resolve));

const browser = await chromium.launch({ executablePath, args: ["--no-sandbox", "--disable-gpu"] });
const found = { console: [] };
for (const name of Object.keys(CLIENTS)) {
  const page = await browser.newPage();
  page.on("console", (message) => {
    if (message.type() === "error") found.console.push(`${name}: ${message.text()}`);
  });
  page.on("pageerror", (error) => found.console.push(`${name}: ${error}`));
  await page.goto(`http://127.0.0.1:${port}/${name}`);
  found[name] = await page.evaluate(([url, key]) => globalThis.look(url, key), [url, key]).catch((error) => ({ failed: String(error) }));
  await page.close();
}
await browser.close();
server.close();
console.log(JSON.stringify(found));
