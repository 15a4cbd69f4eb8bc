// The official TypeScript client, 1.x or 2.x: connects to the server that the task names, asks everything the task says,
// and prints what it saw as one JSON document.
import { readFileSync } from "node:fs";

// The document alone is for standard output.
console.log = console.info = console.debug = console.error;
const task = JSON.parse(readFileSync(process.argv[2], "utf8"));
const isNew = process.argv[1].endsWith("client2.mjs");
const { Client, StdioClientTransport, StreamableHTTPClientTransport, SSEClientTransport, schemas } = isNew
  ? {
      ...(await import("@modelcontextprotocol/client")),
      ...(await import("@modelcontextprotocol/client/stdio")),
    }
  : {
      ...(await import("@modelcontextprotocol/sdk/client/index.js")),
      ...(await import("@modelcontextprotocol/sdk/client/stdio.js")),
      ...(await import("@modelcontextprotocol/sdk/client/streamableHttp.js")),
      ...(await import("@modelcontextprotocol/sdk/client/sse.js")),
      schemas: await import("@modelcontextprotocol/sdk/types.js"),
    };
const client = new Client(
  { name: "end-to-end", version: "1.0.0" },
  {
    capabilities: { sampling: {}, elicitation: {}, roots: { listChanged: true } },
    versionNegotiation: { mode: task.mode ?? "legacy" },
  },
);
const asked = [];
const on = (method, schema, answer) =>
  client.setRequestHandler(isNew ? method : schemas[schema], (request) => {
    asked.push({ method: request.method, params: withoutToken(request.params) });
    return answer;
  });
on("sampling/createMessage", "CreateMessageRequestSchema", {
  role: "assistant", model: "scripted", stopReason: "endTurn", content: { type: "text", text: "sampled" },
});
on("elicitation/create", "ElicitRequestSchema", { action: "decline" });
on("roots/list", "ListRootsRequestSchema", { roots: [{ uri: "file:///nowhere", name: "nowhere" }] });

const seen = { lists: {}, calls: [], asked };

async function attempt(question) {
  try {
    return await question();
  } catch (error) {
    return { error: { code: error.code, message: error.message } };
  }
}

// A token of the client's own counts requests, which depends on timing.
function withoutToken(params) {
  const copy = structuredClone(params ?? {});
  delete copy?._meta?.progressToken;
  return copy;
}

function transport() {
  if (task.url) {
    return new (task.transport === "sse" ? SSEClientTransport : StreamableHTTPClientTransport)(new URL(task.url));
  }
  // As an agent does it: where the server is stands in a file.
  const { command, args, env } = task.config ? JSON.parse(readFileSync(task.config, "utf8")).mcpServers[task.server] : task;
  return new StdioClientTransport({ command, args, env: { ...process.env, ...env }, stderr: "inherit" });
}

await client.connect(transport());
seen.server = client.getServerVersion();
seen.capabilities = client.getServerCapabilities();
seen.instructions = client.getInstructions();
// Servers add tools after they know what the client can do.
await new Promise((resolve) => setTimeout(resolve, 300));
seen.lists.tools = await attempt(() => client.listTools());
seen.lists.prompts = await attempt(() => client.listPrompts());
seen.lists.resources = await attempt(() => client.listResources());
seen.lists.templates = await attempt(() => client.listResourceTemplates());
async function call(name, args) {
  const progress = [];
  const options = task.progress?.includes(name) ? { onprogress: (step) => progress.push(step) } : {};
  const request = { name, arguments: args };
  const result = await attempt(() => (isNew ? client.callTool(request, options) : client.callTool(request, undefined, options)));
  return { name, result, progress };
}
for (const [name, args] of task.calls) seen.calls.push(await call(name, args));
if (task.later) {
  // Who lists once more hears what a server says the second time.
  seen.again = await attempt(() => client.listTools());
  seen.later = [];
  for (const [name, args] of task.later) seen.later.push(await call(name, args));
}
for (const [name, args] of task.prompts ?? []) {
  seen.calls.push({ name, result: await attempt(() => client.getPrompt({ name, arguments: args })) });
}
for (const uri of task.resources ?? []) {
  seen.calls.push({ uri, result: await attempt(() => client.readResource({ uri })) });
}
await client.close();
process.stdout.write(JSON.stringify(seen));
