// A day of ordinary work through one proxy in front of real servers, with the official TypeScript client: each sequence
// takes up what the calls before it answered, as people and models do. Prints what became of every call as one JSON
// document.
import { readFileSync } from "node:fs";
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";

const task = JSON.parse(readFileSync(process.argv[2], "utf8"));
const client = new Client({ name: "day", version: "1.0.0" }, { capabilities: {} });
await client.connect(
  new StdioClientTransport({ command: task.command, args: task.args, env: process.env, stderr: "inherit" }),
);
// Servers in Python take their time, and the proxy lists those that are there.
let listed = new Set();
for (let waited = 0; waited < 240; waited++) {
  const { tools } = await client.listTools();
  listed = new Set(tools.map((tool) => tool.name));
  if (task.servers.every((server) => tools.some((tool) => tool.name.startsWith(`${server}__`)))) break;
  await new Promise((resolve) => setTimeout(resolve, 250));
}

const calls = [];
let sequence = "";
async function call(tool, args) {
  const entry = { sequence, tool, args, listed: listed.has(tool) };
  calls.push(entry);
  try {
    const result = await client.callTool({ name: tool, arguments: args });
    entry.text = (result.content ?? []).map((block) => block.text ?? "").join("\n");
    entry.isError = result.isError === true;
  } catch (error) {
    entry.text = `${error.code} ${error.message}`;
    entry.isError = true;
  }
  return entry.text;
}

const { project, port, day } = task;
const site = `http://127.0.0.1:${port}`;
const file = (name) => `${project}/${name}`;
const read = (name) => call("files__read_text_file", { path: file(name) });
const write = (name, content) => call("files__write_file", { path: file(name), content });
const fetched = (path) => call("web__fetch", { url: `${site}${path}` });
const git = (tool, args = {}) => call(`git__git_${tool}`, { repo_path: project, ...args });
const quoted = (text) => `'${text.replaceAll("'", "''")}'`;
const lines = (text) => text.split("\n").map((line) => line.trim()).filter((line) => line.length > 20);
const commit = async (names, message) => {
  await git("status");
  await git("add", { files: names });
  await git("commit", { message });
};

const works = {
  async "look around"(name) {
    await call("files__list_directory", { path: file("docs") });
    await call("files__search_files", { path: project, pattern: name });
    await read(`docs/${name}`);
    await call("files__get_file_info", { path: file(`docs/${name}`) });
  },
  async "copy and change"(name) {
    const text = await read(`docs/${name}`);
    await write(`drafts/${day}-${name}`, `${text}\n\nReviewed on day ${day}; no open points.\n`);
    await read(`drafts/${day}-${name}`);
  },
  async "edit and commit"(name) {
    const text = await read(`docs/${name}`);
    const first = text.split("\n")[0];
    await call("files__edit_file", {
      path: file(`docs/${name}`),
      edits: [{ oldText: first, newText: `${first} (${day})` }],
    });
    await git("diff_unstaged");
    await commit([`docs/${name}`], `Name the day in ${name}\n\nThe title says which day the text is of.`);
    await call("files__edit_file", {
      path: file(`docs/${name}`),
      edits: [{ oldText: `${first} (${day})`, newText: first }],
    });
    await commit([`docs/${name}`], `Restore the title of ${name}`);
  },
  async "remember what was read"(name) {
    const text = await read(`docs/${name}`);
    const observations = lines(text).slice(0, 3);
    await call("memory__create_entities", {
      entities: [{ name: `${name} of day ${day}`, entityType: "document", observations }],
    });
    await call("memory__search_nodes", { query: name });
  },
  async "fetch and note"(name) {
    const page = await fetched(`/docs/${name}`);
    await write(`notes/${day}-${name}`, `# From the web\n\n${lines(page).slice(0, 6).join("\n")}\n`);
  },
  async "look an issue up"(name, number) {
    const issue = await fetched(`/issues/${number + 11}`);
    await call("memory__create_entities", {
      entities: [{ name: `issue ${number + 11} of day ${day}`, entityType: "issue", observations: lines(issue).slice(0, 2) }],
    });
    await call("files__search_files", { path: project, pattern: "*.md" });
  },
  async "search the web"(name) {
    const text = await read(`docs/${name}`);
    const words = text.split("\n")[0].replace(/[^A-Za-z ]/g, "").trim().split(/ +/).slice(0, 3).join("+");
    await fetched(`/search?q=${words}`);
    await fetched(`/docs/${name}`);
  },
  async "fill a table"(name, number) {
    const text = await read(`docs/${name}`);
    const rows = lines(text).slice(0, 4).map((line, at) => `(${day * 1000 + number * 10 + at}, ${quoted(name)}, ${quoted(line)})`);
    await call("data__write_query", { query: `INSERT INTO lines (id, name, text) VALUES ${rows.join(", ")}` });
    const found = await call("data__read_query", { query: `SELECT id, text FROM lines WHERE name = ${quoted(name)} ORDER BY id` });
    await write(`reports/${day}-${name}.txt`, found);
  },
  async "report on the history"(name, number) {
    const log = await git("log", { max_count: 5 });
    await write(`reports/${day}-log-${number}.md`, `# Recent changes\n\n${log}\n`);
    await commit([`reports/${day}-log-${number}.md`], `Add report ${number} of day ${day}`);
    await git("show", { revision: "HEAD" });
  },
  async "plan a meeting"(name, number) {
    const zones = ["Asia/Tokyo", "America/New_York", "Europe/Berlin", "Australia/Sydney"];
    await call("clock__get_current_time", { timezone: "UTC" });
    const time = await call("clock__convert_time", {
      source_timezone: "UTC", time: `${String(8 + number).padStart(2, "0")}:30`, target_timezone: zones[number % zones.length],
    });
    await write(`notes/${day}-meeting-${number}.md`, `# Meeting about ${name}\n\n${time}\n\nAgenda: open points, next release.\n`);
  },
  async "compute and keep"(name, number) {
    await call("all__get-sum", { a: number * 17, b: day });
    const weather = await call("all__get-structured-content", { location: "Chicago" });
    const said = await call("all__echo", { message: `Today: ${name}, ${weather}` });
    await write(`notes/${day}-${number}.txt`, said);
  },
  async "collect what is known"(name, number) {
    const graph = await call("memory__open_nodes", { names: [`${name} of day ${day}`, `issue ${number + 11} of day ${day}`] });
    await write(`reports/${day}-known-${number}.json`, graph);
    await git("diff_unstaged");
    await call("data__read_query", { query: "SELECT name, count(*) FROM lines GROUP BY name" });
  },
};

await call("data__create_table", { query: "CREATE TABLE IF NOT EXISTS lines (id INTEGER PRIMARY KEY, name TEXT, text TEXT)" });
for (const [work, body] of Object.entries(works)) {
  for (const [number, name] of task.documents.entries()) {
    sequence = `${work}: ${name}`;
    await body(name, number);
  }
}
await client.close();
process.stdout.write(JSON.stringify({ sequences: Object.keys(works).length * task.documents.length, calls }));
