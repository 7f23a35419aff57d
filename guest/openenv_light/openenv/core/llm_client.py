"""Clients of language models, over the packages ``openai`` and ``anthropic``."""

import json
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any, Dict, List
from urllib.parse import urlsplit, urlunsplit

from .. import _missing

_HOSTED = {"openai": "https://api.openai.com", "anthropic": "https://api.anthropic.com"}

#: Models of OpenAI that count completion tokens under another name and take no temperature.
_REASONING_MODELS = ("gpt-5-mini", "o1", "o3", "o4-mini")


@dataclass
class ToolCall:
    """A call that the model wants made."""

    id: str
    name: str
    args: Dict[str, Any]


@dataclass
class LLMResponse:
    """What the model said, and the calls that it wants made."""

    content: str
    tool_calls: List[ToolCall] = field(default_factory=list)

    def to_message_dict(self):
        """The answer as an assistant's message in OpenAI's form."""
        message = {"role": "assistant", "content": self.content}
        if self.tool_calls:
            message["tool_calls"] = [
                {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": json.dumps(call.args)}}
                for call in self.tool_calls
            ]
        return message


def _service_url(endpoint, port):
    """The endpoint with its port, checked; credentials, queries and fragments would end up in logs or in wrong places."""
    shown = endpoint
    try:
        parts = urlsplit(endpoint)
        if "@" in parts.netloc:
            shown = endpoint.replace(parts.netloc.rsplit("@", 1)[0], "***", 1)
            raise ValueError("credentials in the URL are not supported, use api_key")
        if parts.scheme not in ("http", "https"):
            raise ValueError("expected an http:// or https:// URL")
        if not parts.hostname:
            raise ValueError("missing host")
        if parts.query or parts.fragment:
            raise ValueError("query strings and fragments are not supported")
        if parts.netloc.endswith(":"):
            raise ValueError("empty port")
        own = parts.port
        for number in (own, port):
            if number is not None and not 1 <= number <= 65535:
                raise ValueError("port %s is out of range 1-65535" % number)
    except ValueError as error:
        raise ValueError("Invalid endpoint URL %r: %s" % (shown, error)) from error
    netloc = parts.netloc
    if own is None:
        netloc += "" if port is None else ":%d" % port
    elif port not in (None, own):
        raise ValueError("Endpoint URL %r already specifies port %s, which conflicts with port=%s" % (shown, own, port))
    return urlunsplit((parts.scheme, netloc, parts.path.rstrip("/"), "", ""))


class LLMClient(ABC):
    """A model behind an HTTP endpoint."""

    def __init__(self, endpoint, port):
        """``port`` may be None, or part of ``endpoint``."""
        self.endpoint = endpoint
        self.port = port

    @property
    def base_url(self):
        """The endpoint with its port."""
        return _service_url(self.endpoint, self.port)

    @abstractmethod
    async def complete(self, prompt, **kwargs):
        """The model's answer to a prompt, as text."""

    async def complete_with_tools(self, messages, tools, **kwargs):
        """The model's answer to messages (in OpenAI's form), where it may call tools (as ``tools/list`` shows them)."""
        raise NotImplementedError("%s does not support tool calling" % type(self).__name__)


class OpenAIClient(LLMClient):
    """Any endpoint that speaks OpenAI's chat completions."""

    def __init__(
        self,
        endpoint,
        port,
        model,
        api_key=None,
        system_prompt=None,
        temperature=0.0,
        max_tokens=256,
        use_max_completion_tokens=False,
    ):
        """An endpoint without a path gets ``/v1``."""
        super().__init__(endpoint, port)
        self.model = model
        self.system_prompt = system_prompt
        self.temperature = temperature
        self.max_tokens = max_tokens
        self._reasons = use_max_completion_tokens
        url = self.base_url
        try:
            from openai import AsyncOpenAI
        except ImportError as error:
            raise ImportError("OpenAIClient needs the package `openai`, which is not installed here") from error
        if not urlsplit(url).path:
            url += "/v1"
        self._client = AsyncOpenAI(base_url=url, api_key="not-needed" if api_key is None else api_key)

    async def _ask(self, messages, overrides, **more):
        limit = overrides.get("max_tokens", self.max_tokens)
        if self._reasons:
            more["max_completion_tokens"] = limit
        else:
            more.update(max_tokens=limit, temperature=overrides.get("temperature", self.temperature))
        answer = await self._client.chat.completions.create(model=self.model, messages=messages, **more)
        return answer.choices[0].message

    async def complete(self, prompt, **kwargs):
        """The answer's text; ``temperature`` and ``max_tokens`` may be given."""
        messages = [{"role": "system", "content": self.system_prompt}] if self.system_prompt else []
        answer = await self._ask(messages + [{"role": "user", "content": prompt}], kwargs)
        return answer.content or ""

    async def complete_with_tools(self, messages, tools, **kwargs):
        """The answer's text and tool calls."""
        more = {}
        if tools:
            more["tools"] = [
                {
                    "type": "function",
                    "function": {
                        "name": tool["name"],
                        "description": tool.get("description", ""),
                        "parameters": _parameters(tool.get("inputSchema")),
                    },
                }
                for tool in tools
            ]
        answer = await self._ask(messages, kwargs, **more)
        calls = [
            ToolCall(id=call.id, name=call.function.name, args=json.loads(call.function.arguments))
            for call in answer.tool_calls or ()
        ]
        return LLMResponse(content=answer.content or "", tool_calls=calls)


class AnthropicClient(LLMClient):
    """Anthropic's Messages API."""

    def __init__(self, endpoint, port, model, api_key=None, system_prompt=None, temperature=0.0, max_tokens=256):
        """Needs the package ``anthropic``."""
        super().__init__(endpoint, port)
        self.model = model
        self.system_prompt = system_prompt
        self.temperature = temperature
        self.max_tokens = max_tokens
        url = self.base_url
        try:
            from anthropic import AsyncAnthropic
        except ImportError as error:
            raise ImportError("AnthropicClient needs the package `anthropic`, which is not installed here") from error
        self._client = AsyncAnthropic(base_url=url, api_key="not-needed" if api_key is None else api_key)

    async def _ask(self, messages, system, overrides, **more):
        if system:
            more["system"] = system
        return await self._client.messages.create(
            model=self.model,
            messages=messages,
            temperature=overrides.get("temperature", self.temperature),
            max_tokens=overrides.get("max_tokens", self.max_tokens),
            **more
        )

    async def complete(self, prompt, **kwargs):
        """The answer's text; ``temperature`` and ``max_tokens`` may be given."""
        answer = await self._ask([{"role": "user", "content": prompt}], self.system_prompt, kwargs)
        return "".join(block.text for block in answer.content if block.type == "text")

    async def complete_with_tools(self, messages, tools, **kwargs):
        """The answer's text and tool calls."""
        system, turns = _anthropic_messages(messages)
        more = {}
        if tools:
            more["tools"] = [
                {
                    "name": tool["name"],
                    "description": tool.get("description", ""),
                    "input_schema": _parameters(tool.get("inputSchema")),
                }
                for tool in tools
            ]
        answer = await self._ask(turns, system or self.system_prompt, kwargs, **more)
        return LLMResponse(
            content="".join(block.text for block in answer.content if block.type == "text"),
            tool_calls=[
                ToolCall(id=block.id, name=block.name, args=block.input)
                for block in answer.content
                if block.type == "tool_use"
            ],
        )


def create_llm_client(provider, model, api_key, *, system_prompt=None, temperature=0.0, max_tokens=4096):
    """A client of a hosted model of ``openai`` or ``anthropic``."""
    name = provider.lower()
    if name not in _HOSTED:
        raise ValueError("Unsupported provider: %r. Supported: %s" % (provider, sorted(_HOSTED)))
    settings = {"api_key": api_key, "system_prompt": system_prompt, "temperature": temperature, "max_tokens": max_tokens}
    if name == "anthropic":
        return AnthropicClient(_HOSTED[name], 443, model, **settings)
    return OpenAIClient(
        _HOSTED[name], 443, model, use_max_completion_tokens=model.startswith(_REASONING_MODELS), **settings
    )


def _parameters(schema):
    """A tool's input schema as one object with properties: model services take no alternatives at the top."""
    if not isinstance(schema, dict):
        return {"type": "object", "properties": {}, "required": []}
    for key in ("oneOf", "anyOf"):
        if key in schema:
            objects = [option for option in schema[key] if isinstance(option, dict) and option.get("type") == "object"]
            if not objects:
                return {"type": "object", "properties": {}, "required": []}
            schema = objects[0]
    if "allOf" in schema:
        parts = [part for part in schema["allOf"] if isinstance(part, dict)]
        properties = {name: value for part in parts for name, value in part.get("properties", {}).items()}
        required = [name for part in parts for name in part.get("required", ())]
        schema = {"type": "object", "properties": properties, "required": required}
    schema = dict(schema)
    schema.setdefault("type", "object")
    if schema["type"] == "object":
        schema.setdefault("properties", {})
    return schema


def _anthropic_messages(messages):
    """Messages in OpenAI's form as Anthropic's: the system text, and the turns."""
    system, turns = [], []
    for message in messages:
        role, content = message["role"], message.get("content", "")
        if role == "system":
            system.append(content)
        elif role == "tool":
            block = {"type": "tool_result", "tool_use_id": message["tool_call_id"], "content": content}
            # Results of one turn's calls belong to one turn.
            if turns and turns[-1]["role"] == "user" and isinstance(turns[-1]["content"], list):
                turns[-1]["content"].append(block)
            else:
                turns.append({"role": "user", "content": [block]})
        elif role == "assistant" and message.get("tool_calls"):
            blocks = [{"type": "text", "text": content}] if content else []
            for call in message["tool_calls"]:
                arguments = call["function"]["arguments"]
                if isinstance(arguments, str):
                    arguments = json.loads(arguments)
                blocks.append({"type": "tool_use", "id": call["id"], "name": call["function"]["name"], "input": arguments})
            turns.append({"role": "assistant", "content": blocks})
        elif role in ("user", "assistant"):
            turns.append({"role": role, "content": content})
    return "\n\n".join(system), turns


def __getattr__(name):
    raise _missing.name(__name__, name)
