"""From the name of a target to something that can be served."""

import importlib
import importlib.abc
import importlib.util
import inspect
import json
import os
import sys
import time

from .contract import contract_of
from .errors import LoadError, text_of
from .target import PydanticCodec, Target, facts_of

HINT_REFERENCE = "serve it with --reference, which puts the real openenv package back"


class FolderFinder(importlib.abc.MetaPathFinder):
    """Answers for a package whose folder has another name than the package (`package-dir` of its pyproject.toml)."""

    def __init__(self, folders):
        self.folders = folders

    def find_spec(self, name, path=None, target=None):
        folder = self.folders.get(name)
        init = folder and os.path.join(folder, "__init__.py")
        if not init or not os.path.isfile(init):
            return None
        return importlib.util.spec_from_file_location(name, init, submodule_search_locations=[folder])


def prepare_path(message):
    """Puts the light openenv, the package's folder and its own names where imports find them."""
    for entry in reversed(message.get("paths") or []):
        sys.path.insert(0, entry)
    light = message.get("light")
    if light:
        sys.path.insert(0, light)
        # Old packages import `core.…`; a package of their own by that name comes first.
        importlib.import_module("openenv._aliases").install()
    if message.get("packages"):
        sys.meta_path.append(FolderFinder(message["packages"]))
    if message.get("cwd"):
        os.chdir(message["cwd"])


class OwnRoutes(Exception):
    """The application has routes of its own, and the real openenv is here to run it."""


def import_module(name, message):
    """Imports the module of a target; explains what is missing."""
    try:
        return importlib.import_module(name)
    except AttributeError as error:
        if type(error).__name__ != "OwnRoutesError":
            raise
        if message.get("light") and real_openenv(message["light"]):
            raise OwnRoutes from error
        raise LoadError("`{}` has routes of its own: {}".format(name, text_of(error).splitlines()[0]), HINT_REFERENCE) from error
    except ImportError as error:
        packages = list(message.get("packages") or {})
        relative = "relative import" in str(error)
        for package in packages if relative else []:
            # The module was written to be imported through its package.
            try:
                return importlib.import_module("{}.{}".format(package, name))
            except ModuleNotFoundError as second:
                if second.name != "{}.{}".format(package, name):
                    error = second
                break
        raise explain(error, name, message) from error


def real_openenv(light):
    """Whether the environment has the real package beside the light one."""
    places = [entry for entry in sys.path if os.path.abspath(entry or ".") != os.path.abspath(light)]
    return any(os.path.isfile(os.path.join(place or ".", "openenv", "__init__.py")) for place in places)


def explain(error, name, message):
    """An import error as a sentence with a remedy."""
    missing = getattr(error, "name", None) or ""
    if missing == name or name.startswith(missing + "."):
        where = message.get("cwd") or os.getcwd()
        return LoadError("no module `{}` in {} nor in the environment".format(missing, where), "a target is `module:name`, as in `server.app:app`", missing)
    if missing.split(".")[0] in ("openenv", "openenv_core"):
        return LoadError("the light openenv lacks what `{}` imports: {}".format(name, text_of(error)), HINT_REFERENCE, missing)
    if isinstance(error, ModuleNotFoundError):
        hint = "add it to the package's dependencies" if message["kind"] == "folder" else "add it by `--with {}`, or name a spec by `--spec`".format(missing)
        return LoadError("`{}` imports `{}`, which is not in this environment".format(name, missing), hint, missing)
    return LoadError("`{}` cannot be imported: {}".format(name, text_of(error)), None, missing or None)


def look_up(module, path):
    """The object that a dotted path names in a module."""
    value = module
    for part in path.split("."):
        try:
            value = getattr(value, part)
        except AttributeError:
            near = [n for n in dir(value) if not n.startswith("_")]
            raise LoadError(
                "`{}` has no `{}`".format(module.__name__, path), "it has {}".format(", ".join(near[:12]) or "nothing public")
            ) from None
    return value


def load(message):
    """Loads what the front asks for: the target and what the front must know of it.

    Raises `LoadError`.
    """
    began = time.perf_counter()
    before = set(sys.modules)
    prepare_path(message)
    if message["kind"] == "gym":
        from .gymtarget import gym_target

        target, contract = gym_target(message["target"])
    else:
        name, _, attribute = message["target"].partition(":")
        try:
            module = import_module(name, message)
        except OwnRoutes:
            return None, {"asgi": True}
        target, contract = from_object(look_up(module, attribute or "app"), message)
    if target is None:
        return None, {"asgi": True}
    version = "{}.{}.{}".format(*sys.version_info[:3])
    cls = target.environment_class()
    facts = facts_of(cls) if cls is not None else probe(target)
    told = {
        "name": target.name,
        "class": facts["class"],
        "facts": facts,
        "max_sessions": target.max_sessions,
        "session_timeout": target.session_timeout,
        "mode": target.mode,
        "schema": contract,
        "pydantic": pydantic_version(),
        "python": version,
        "import_seconds": time.perf_counter() - began,
        "modules": len(set(sys.modules) - before),
    }
    json.dumps(told)
    return target, told


def pydantic_version():
    pydantic = sys.modules.get("pydantic")
    return ".".join(pydantic.VERSION.split(".")[:2]) if pydantic is not None else ""


def probe(target):
    """What the class of a factory's instances says, asked in a process that is thrown away."""
    source, sink = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            try:
                told = {"facts": facts_of(type(target.make()))}
            except BaseException as error:
                told = {"error": text_of(error.__cause__ or error)}
            os.write(sink, json.dumps(told).encode())
        finally:
            os._exit(0)
    os.close(sink)
    text = b""
    while True:
        part = os.read(source, 1 << 16)
        if not part:
            break
        text += part
    os.close(source)
    os.waitpid(pid, 0)
    told = json.loads(text.decode()) if text else {"error": "its process ended"}
    if "error" in told:
        name = target.factory_name()
        raise LoadError("the factory `{}` could not make an environment: {}".format(name, told["error"]))
    return told["facts"]


def is_app(value):
    """Whether `create_app` of the light openenv made it."""
    cls = type(value)
    return cls.__name__ == "EnvApp" and cls.__module__.split(".")[0] == "openenv"


def from_object(value, message):
    """A target from what the module has under the name."""
    if inspect.isfunction(value) and not is_app(value) and not hasattr(value, "step"):
        value = called(value)
    if is_app(value):
        return from_app(value)
    if inspect.isclass(value) and hasattr(value, "reset") and hasattr(value, "step"):
        if any(c.__name__ == "Env" and c.__module__.split(".")[0] in ("gymnasium", "gym") for c in value.__mro__):
            from .gymtarget import gym_class_target

            return gym_class_target(value)
        return from_class(value, value)
    if callable(value) and hasattr(value, "factory") and hasattr(value, "cls"):
        return from_class(value.factory, value.cls)
    if callable(value) and not inspect.isclass(value):
        return None, None  # an ASGI application: the front runs it as it is
    raise LoadError(
        "`{}` is {}, which cannot be served".format(
            message["target"], "the class {}".format(value.__name__) if inspect.isclass(value) else "of the type {}".format(type(value).__name__)
        ),
        "name an application made by create_app, or a class with reset and step",
    )


class Made:
    """A function that makes environments, and the class of what it makes."""

    def __init__(self, factory, cls):
        self.factory, self.cls = factory, cls

    def __call__(self):
        return self.factory()


def called(function):
    """A function is a factory: of applications (as uvicorn has it) or of environments."""
    required = [p for p in inspect.signature(function).parameters.values() if p.default is p.empty and p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    if required:
        if len(required) == 3 or inspect.iscoroutinefunction(function):
            return function  # an ASGI callable takes scope, receive and send
        raise LoadError("the factory `{}` needs arguments: {}".format(function.__name__, ", ".join(p.name for p in required)))
    value = function()
    if hasattr(value, "reset") and hasattr(value, "step"):
        if hasattr(value, "close"):
            value.close()
        return Made(function, type(value))
    return value


def from_app(app):
    """What `create_app` recorded."""
    codec = PydanticCodec(app.action_cls, app.observation_cls, app.state_cls, app.reset_observation_cls)
    config = app.concurrency_config
    target = Target(
        app.env,
        codec,
        app.env_name,
        getattr(app.env, "__name__", "environment"),
        max_sessions=config.max_concurrent_envs if config is not None else app.max_concurrent_envs,
        session_timeout=config.session_timeout if config is not None else None,
        mode=str(getattr(app.mode, "value", app.mode)) if app.mode is not None else None,
    )
    cls = target.environment_class()
    return target, contract_of(codec, cls)


def from_class(factory, cls):
    """A class with reset and step: its models are in its annotations."""
    from .plain import codec_of

    codec = codec_of(cls)
    target = Target(factory, codec, cls.__name__, cls.__name__)
    return target, contract_of(codec, cls)
