// The official TypeScript client: connects to the server that the task names, asks everything the task says, and
// prints what it saw as one JSON document.
import { readFileSync } from "node:fs";
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";
import {
  CreateMessageRequestSchema,
  ElicitRequestSchema,
  ListRootsRequestSchema,
} from "@modelcontextprotocol/sdk/types.js";

const task = JSON.parse(readFileSync(process.argv[2], "utf8"));
const client = new Client(
  { name: "end-to-end", version: "1.0.0" },
  { capabilities: { sampling: {}, elicitation: {}, roots: { listChanged: true } } },
);
const asked = [];
const on = (schema, answer) =>
  client.setRequestHandler(schema, (request) => {
    asked.push({ method: request.method, params: withoutToken(request.params) });
    return answer;
  });
on(CreateMessageRequestSchema, {
  role: "assistant", model: "scripted", stopReason: "endTurn", content: { type: "text", text: "sampled" },
});
on(ElicitRequestSchema, { action: "decline" });
on(ListRootsRequestSchema, { roots: [{ uri: "file:///nowhere", name: "nowhere" }] });

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

await client.connect(
  new StdioClientTransport({ command: task.command, args: task.args, env: { ...process.env, ...task.env }, stderr: "inherit" }),
);
seen.server = client.getServerVersion();
seen.capabilities = client.getServerCapabilities();
seen.instructions = client.getInstructions();
// Servers add tools after they know what the client can do.
await new Promise((resolve) => setTimeout(resolve, 300));
seen.lists.tools = await attempt(() => client.listTools());
seen.lists.prompts = await attempt(() => client.listPrompts());
seen.lists.resources = await attempt(() => client.listResources());
seen.lists.templates = await attempt(() => client.listResourceTemplates());
for (const [name, args] of task.calls) {
  const progress = [];
  const options = task.progress?.includes(name) ? { onprogress: (step) => progress.push(step) } : {};
  const result = await attempt(() => client.callTool({ name, arguments: args }, undefined, options));
  seen.calls.push({ name, result, progress });
}
for (const [name, args] of task.prompts ?? []) {
  seen.calls.push({ name, result: await attempt(() => client.getPrompt({ name, arguments: args })) });
}
for (const uri of task.resources ?? []) {
  seen.calls.push({ uri, result: await attempt(() => client.readResource({ uri })) });
}
await client.close();
process.stdout.write(JSON.stringify(seen));
