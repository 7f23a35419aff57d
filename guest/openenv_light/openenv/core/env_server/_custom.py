"""Custom types in models: a class with ``to_json`` and ``from_json`` is a field type like any other.

pydantic asks a class for its schema through ``__get_pydantic_core_schema__``. When a model is declared, the classes that
its annotations name and that can go to JSON and back get that method.
"""

import ast
import dataclasses
import enum
import inspect
import sys
import typing

from pydantic import BaseModel, TypeAdapter
from pydantic_core import core_schema

ModelMetaclass = type(BaseModel)

_SCHEMA = "__get_pydantic_core_schema__"
_JSON_SCHEMA = "__get_pydantic_json_schema__"


class CustomTypesMeta(ModelMetaclass):
    """Metaclass of Action, Observation and State."""

    def __new__(mcs, name, bases, namespace, **kwargs):
        """Prepares the classes that the annotations name, then declares the model."""
        _prepare_annotations(namespace, sys._getframe(1))
        return super().__new__(mcs, name, bases, namespace, **kwargs)


def fallback(value):
    """JSON value of a custom instance that sits in an untyped place; for the ``fallback`` of pydantic's serialisers."""
    if is_custom(type(value)):
        return value.to_json()
    raise TypeError("a value of type %s has no JSON form: give it to_json and from_json" % type(value).__qualname__)


def is_custom(cls):
    """Whether instances go to JSON by a method and come back by a class method."""
    if not isinstance(cls, type) or issubclass(cls, BaseModel):
        return False
    reader = inspect.getattr_static(cls, "from_json", None)
    return isinstance(reader, (classmethod, staticmethod)) and callable(getattr(cls, "to_json", None))


def _prepare_annotations(namespace, frame):
    annotations = namespace.get("__annotations__")
    if annotations is None:
        annotations = _deferred(namespace)
    if not annotations:
        return
    module = sys.modules.get(namespace.get("__module__", ""))
    scopes = [getattr(module, "__dict__", {})]
    # A model declared inside a function names classes of that function.
    if frame.f_locals is not frame.f_globals:
        scopes.insert(0, frame.f_locals)
    seen = set()
    for annotation in annotations.values():
        _visit(annotation, scopes, seen)


def _deferred(namespace):
    """Annotations that Python 3.14 and later keep as a function."""
    function = namespace.get("__annotate_func__") or namespace.get("__annotate__")
    if function is None:
        return None
    import annotationlib

    return annotationlib.call_annotate_function(function, annotationlib.Format.FORWARDREF)


def _visit(annotation, scopes, seen):
    if id(annotation) in seen:
        return
    seen.add(id(annotation))
    if isinstance(annotation, typing.ForwardRef):
        annotation = annotation.__forward_arg__
    if isinstance(annotation, str):
        for found in _named(annotation, scopes):
            _visit(found, scopes, seen)
    elif isinstance(annotation, type) and not getattr(annotation, "__args__", None):
        _attach(annotation)
    else:
        # Parts of List[X], Optional[X], Dict[K, X], Annotated[X, ...], X | None.
        for part in getattr(annotation, "__args__", None) or ():
            _visit(part, scopes, seen)


def _named(text, scopes):
    """The objects that the names in an annotation's text stand for."""
    try:
        tree = ast.parse(text.strip(), mode="eval")
    except SyntaxError:
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value != text:
            for found in _named(node.value, scopes):
                yield found
        elif isinstance(node, (ast.Name, ast.Attribute)):
            found = _resolve(node, scopes)
            if found is not None:
                yield found


def _resolve(node, scopes):
    if isinstance(node, ast.Name):
        for scope in scopes:
            if node.id in scope:
                return scope[node.id]
        return None
    if isinstance(node, ast.Attribute):
        return getattr(_resolve(node.value, scopes), node.attr, None)
    return None


def _attach(cls):
    if hasattr(cls, _SCHEMA) or not is_custom(cls):
        return
    if _known_to_pydantic(cls):
        return
    try:
        setattr(cls, _SCHEMA, classmethod(_core_schema))
        if not hasattr(cls, _JSON_SCHEMA):
            setattr(cls, _JSON_SCHEMA, classmethod(_json_schema))
    except TypeError:
        # A class written in C takes no attributes; pydantic then treats it as any arbitrary type.
        return


def _known_to_pydantic(cls):
    """Types that pydantic reads field by field keep that form, which is what peers on the wire know."""
    if not (dataclasses.is_dataclass(cls) or issubclass(cls, enum.Enum) or hasattr(cls, "_fields")):
        return False
    try:
        TypeAdapter(cls)
    except Exception:
        return False
    return True


def _core_schema(cls, source, handler):
    def read(value):
        if isinstance(value, cls):
            return value
        try:
            return cls.from_json(value)
        except (ValueError, AssertionError):
            raise
        except Exception as error:
            # The model reports ValueErrors as errors of the field; a KeyError here is a fault of the value just as well.
            raise ValueError("%s.from_json: %s: %s" % (cls.__name__, type(error).__name__, error)) from error

    def write(value):
        return value.to_json()

    # model_dump() keeps the instance; whatever becomes JSON is what to_json gives.
    serialization = core_schema.plain_serializer_function_ser_schema(write, when_used="json")
    return core_schema.no_info_plain_validator_function(read, serialization=serialization)


def _json_schema(cls, schema, handler):
    offered = getattr(cls, "json_schema", None)
    return dict(offered()) if callable(offered) else {}
