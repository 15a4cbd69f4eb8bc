// The official TypeScript libraries of Anthropic and OpenAI: asks a model everything that the test says, streamed and
// not, and prints what it was given as one JSON document.

const SYSTEM = "You are the internal pricing oracle of Example Corp.";

async function ofAnthropic(which, streamed) {
  const { default: Anthropic } = await import("@anthropic-ai/sdk");
  const client = new Anthropic({ maxRetries: 0 });
  const asked = { model: "m", max_tokens: 100, system: SYSTEM, messages: [{ role: "user", content: which }] };
  const message = streamed
    ? await client.messages.stream(asked).finalMessage()
    : await client.messages.create(asked);
  const text = message.content.filter((block) => block.type === "text").map((block) => block.text).join("");
  const tools = message.content.filter((block) => block.type === "tool_use").map((block) => block.name);
  return { text, tools, reason: message.stop_reason };
}

async function openai() {
  const { default: OpenAI } = await import("openai");
  return new OpenAI({ maxRetries: 0 });
}

async function ofChat(which, streamed) {
  const client = await openai();
  const asked = {
    model: "m",
    messages: [{ role: "system", content: SYSTEM }, { role: "user", content: which }],
  };
  const completion = streamed
    ? await client.chat.completions.stream(asked).finalChatCompletion()
    : await client.chat.completions.create(asked);
  const { message, finish_reason } = completion.choices[0];
  const tools = (message.tool_calls ?? []).map((call) => call.function.name);
  return { text: message.content, tools, reason: finish_reason };
}

async function ofResponses(which, streamed) {
  const client = await openai();
  const asked = { model: "m", instructions: SYSTEM, input: [{ role: "user", content: which }] };
  const response = streamed
    ? await client.responses.stream(asked).finalResponse()
    : await client.responses.create(asked);
  const tools = response.output.filter((item) => item.type === "function_call").map((item) => item.name);
  return { text: response.output_text, tools, reason: response.status };
}

const APIS = { anthropic: ofAnthropic, chat: ofChat, responses: ofResponses };

const seen = [];
for (const api of process.argv[2].split(",")) {
  for (const which of process.argv[3].split(",")) {
    for (const streamed of [true, false]) {
      try {
        seen.push({ api, which, streamed, ...(await APIS[api](which, streamed)) });
      } catch (error) {
        // Whatever it is, the test wants to read it.
        seen.push({ api, which, streamed, error: String(error.stack ?? error) });
      }
    }
  }
}
console.log(JSON.stringify(seen));
