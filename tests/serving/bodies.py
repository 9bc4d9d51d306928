"""Request bodies that the tests start from: greedy, with nothing else asked."""

from __future__ import annotations

from typing import Any, NamedTuple

from sembridge.serving import openai, vllm
from sembridge.serving.fields import Schema
from sembridge.serving.surface import Api


class Start(NamedTuple):
    api: Api
    schema: Schema
    greedy: dict[str, Any]

    def __repr__(self) -> str:
        return self.schema.name

    def but(self, **fields: Any) -> dict[str, Any]:
        return {**self.greedy, **fields}


SAY = [{"role": "user", "content": "neutral text"}]
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}

PARAMS = Start("vllm", vllm.SAMPLING, {"temperature": 0})
CHAT = Start("openai", openai.CHAT, {"temperature": 0, "model": "m", "messages": SAY})
COMPLETION = Start("openai", openai.COMPLETIONS, {"temperature": 0, "model": "m", "prompt": "a"})
RESPONSE = Start("openai", openai.RESPONSES, {"temperature": 0, "model": "m", "input": "a"})
STARTS = (PARAMS, CHAT, COMPLETION, RESPONSE)
