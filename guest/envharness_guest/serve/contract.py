"""JSON Schemas of what goes in and out, read from the models when the target loads."""

import inspect
import typing

from .errors import LoadError, text_of

#: The schema of anything.
ANY_OBJECT = {"type": "object", "additionalProperties": True}


def contract_of(codec, cls):
    """The schemas of action, observation, reset observation, state and reset arguments."""
    if hasattr(codec, "schemas"):
        schemas = codec.schemas()
    else:
        from openenv.core.env_server.types import State

        schemas = {
            "action": schema_of(codec.action_cls, "validation"),
            "observation": schema_of(codec.observation_cls, "serialization"),
            "state": schema_of(codec.state_cls or State, "serialization"),
            "reset_observation": schema_of(codec.reset_observation_cls, "serialization"),
        }
    schemas["reset"] = reset_schema(cls)
    return schemas


def schema_of(model, mode):
    """The model's JSON Schema, as the reference publishes it.

    Raises `LoadError` with the path of the field that cannot become JSON.
    """
    try:
        schema = model.model_json_schema()
    except Exception as error:
        if mode == "validation":
            raise refused(model, error) from error
        try:
            # What only goes out needs a serializer, not a way in.
            schema = model.model_json_schema(mode="serialization")
        except Exception:
            raise refused(model, error) from error
    round_trips(model, model.__name__, set())
    return schema


def refused(model, error):
    path = guilty_field(model, model.__name__, set()) or model.__name__
    return LoadError(
        "`{}` cannot become JSON: {}".format(path, text_of(error).splitlines()[0]),
        "use str, int, float, bool, list, dict or a model of these; or give the type `to_json` and `from_json`",
    )


def guilty_field(annotation, path, seen):
    """The path of the first field below `annotation` that has no JSON Schema."""
    from pydantic import BaseModel, TypeAdapter

    if inspect.isclass(annotation) and issubclass(annotation, BaseModel):
        if annotation in seen:
            return None
        seen.add(annotation)
        for name, field in annotation.model_fields.items():
            found = guilty_field(field.annotation, "{}.{}".format(path, name), seen)
            if found:
                return found
        return None
    for part in typing.get_args(annotation):
        if part is not type(None) and part is not Ellipsis:
            found = guilty_field(part, path, seen)
            if found:
                return found
    try:
        TypeAdapter(annotation, config=None).json_schema(mode="serialization")
    except Exception:
        return path
    return None


def custom_types(annotation):
    """The classes below an annotation that say themselves how they become JSON."""
    parts = typing.get_args(annotation)
    if parts:
        for part in parts:
            yield from custom_types(part)
    elif inspect.isclass(annotation) and hasattr(annotation, "to_json") and hasattr(annotation, "from_json"):
        yield annotation


def round_trips(model, path, seen):
    """Tries each custom type's way out and back on the field's default, where there is one."""
    from pydantic import BaseModel

    if model in seen:
        return
    seen.add(model)
    for name, field in model.model_fields.items():
        here = "{}.{}".format(path, name)
        for cls in custom_types(field.annotation):
            sample = field.get_default(call_default_factory=True)
            if not isinstance(sample, cls):
                continue
            try:
                out = sample.to_json()
                back = cls.from_json(out).to_json()
            except Exception as error:
                raise LoadError("`{}`: {} does not survive to_json and from_json: {}".format(here, cls.__name__, text_of(error))) from error
            if back != out:
                raise LoadError("`{}`: {} changes between to_json and from_json: {!r} became {!r}".format(here, cls.__name__, out, back))
        for part in (field.annotation, *typing.get_args(field.annotation)):
            if inspect.isclass(part) and issubclass(part, BaseModel):
                round_trips(part, here, seen)


def reset_schema(cls):
    """What `reset` takes, from its signature."""
    method = None
    if cls is not None:
        own = getattr(cls, "reset_async", None)
        from .target import is_async

        method = own if own is not None and is_async(cls, "reset") else getattr(cls, "reset", None)
    properties = {
        "seed": {"anyOf": [{"type": "integer", "minimum": 0}, {"type": "null"}], "default": None, "title": "Seed"},
        "episode_id": {"anyOf": [{"type": "string", "maxLength": 255}, {"type": "null"}], "default": None, "title": "Episode Id"},
    }
    required, open_ended = [], method is None
    for parameter in inspect.signature(method).parameters.values() if method is not None else []:
        if parameter.kind is parameter.VAR_KEYWORD:
            open_ended = True
        elif parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY) and parameter.name not in ("self", "seed", "episode_id"):
            properties[parameter.name] = parameter_schema(method, parameter)
            if parameter.default is parameter.empty:
                required.append(parameter.name)
    schema = {"title": "ResetArguments", "type": "object", "properties": properties, "additionalProperties": open_ended}
    if required:
        schema["required"] = required
    return schema


def parameter_schema(method, parameter):
    title = parameter.name.replace("_", " ").title()
    schema = {}
    try:
        from pydantic import TypeAdapter

        hint = typing.get_type_hints(method).get(parameter.name, typing.Any)
        schema = TypeAdapter(hint).json_schema()
    except Exception:
        schema = {}  # without a type, or one that says nothing to JSON: anything
    if isinstance(parameter.default, (str, int, float, bool, type(None))):
        schema.setdefault("default", parameter.default)
    schema.setdefault("title", title)
    return schema
