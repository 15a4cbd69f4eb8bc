"""The official Python libraries of Anthropic and OpenAI: asks a model everything that the test says, streamed and
not, and prints what it was given as one JSON document."""

import json
import sys

SYSTEM = "You are the internal pricing oracle of Example Corp."


def of_anthropic(which, streamed):
    import anthropic

    client = anthropic.Anthropic(max_retries=0)
    asked = {
        "model": "m",
        "max_tokens": 100,
        "system": SYSTEM,
        "messages": [{"role": "user", "content": which}],
    }
    if streamed:
        with client.messages.stream(**asked) as stream:
            for _ in stream:
                pass
            message = stream.get_final_message()
    else:
        message = client.messages.create(**asked)
    text = "".join(block.text for block in message.content if block.type == "text")
    tools = [block.name for block in message.content if block.type == "tool_use"]
    return text, tools, message.stop_reason


def of_chat(which, streamed):
    import openai

    client = openai.OpenAI(max_retries=0)
    messages = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": which}]
    if streamed:
        with client.chat.completions.stream(model="m", messages=messages) as stream:
            for _ in stream:
                pass
            completion = stream.get_final_completion()
    else:
        completion = client.chat.completions.create(model="m", messages=messages)
    choice = completion.choices[0]
    tools = [call.function.name for call in choice.message.tool_calls or []]
    return choice.message.content, tools, choice.finish_reason


def of_responses(which, streamed):
    import openai

    client = openai.OpenAI(max_retries=0)
    asked = {"model": "m", "instructions": SYSTEM, "input": [{"role": "user", "content": which}]}
    if streamed:
        with client.responses.stream(**asked) as stream:
            for _ in stream:
                pass
            response = stream.get_final_response()
    else:
        response = client.responses.create(**asked)
    tools = [item.name for item in response.output if item.type == "function_call"]
    return response.output_text, tools, response.status


APIS = {"anthropic": of_anthropic, "chat": of_chat, "responses": of_responses}

seen = []
for api in sys.argv[1].split(","):
    for which in sys.argv[2].split(","):
        for streamed in [True, False]:
            answer = {"api": api, "which": which, "streamed": streamed}
            try:
                answer["text"], answer["tools"], answer["reason"] = APIS[api](which, streamed)
            except Exception as error:  # Whatever it is, the test wants to read it.
                answer["error"] = repr(error)
            seen.append(answer)
print(json.dumps(seen))
