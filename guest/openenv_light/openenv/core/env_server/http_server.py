"""What a package says about its server. Nothing is served from here: the worker reads what was created, and serves it."""

import functools
import inspect
import os

from ... import _missing
from .exceptions import ConcurrencyConfigurationError, OwnRoutesError
from .types import ConcurrencyConfig, ServerMode, State

#: Names of FastAPI's application, and of what it inherits: a package that uses one has routes of its own.
_APPLICATION_NAMES = frozenset(
    "get put post delete options head patch trace route routes mount host include_router add_route add_api_route "
    "add_websocket_route add_api_websocket_route websocket websocket_route api_route add_middleware middleware "
    "middleware_stack build_middleware_stack user_middleware on_event add_event_handler exception_handler "
    "exception_handlers add_exception_handler router state lifespan dependency_overrides openapi openapi_schema "
    "openapi_url openapi_tags openapi_version docs_url redoc_url servers setup url_path_for webhooks root_path "
    "default_response_class".split()
)

_created = []


def created_apps():
    """All applications that were created in this process, in order; the list itself."""
    return _created


class EnvApp:
    """What ``create_app`` was given.

    ``env`` is the factory or class as given, ``max_concurrent_envs`` and ``concurrency_config`` are None where not given, and
    ``concurrency`` is what both come to. ``mode`` is a ServerMode.
    """

    def __init__(
        self,
        env,
        action_cls,
        observation_cls,
        env_name=None,
        max_concurrent_envs=None,
        concurrency_config=None,
        gradio_builder=None,
        custom_tab_name="Custom",
        custom_tab_primary=False,
        show_default_tab=True,
        title_override=None,
        state_cls=State,
        mode=None,
        reset_observation_cls=None,
        web=False,
    ):
        """Checks the arguments as openenv's server does at its start."""
        self.server = HTTPEnvServer(
            env,
            action_cls,
            observation_cls,
            max_concurrent_envs,
            concurrency_config,
            env_name,
            state_cls,
            reset_observation_cls=reset_observation_cls,
        )
        self.env = env
        self.action_cls = action_cls
        self.observation_cls = observation_cls
        self.state_cls = state_cls
        self.reset_observation_cls = self.server.reset_observation_cls
        self.env_name = self.server.env_name
        self.max_concurrent_envs = max_concurrent_envs
        self.concurrency_config = concurrency_config
        self.concurrency = self.server.concurrency_config
        self.gradio_builder = gradio_builder
        self.custom_tab_name = custom_tab_name
        self.custom_tab_primary = custom_tab_primary
        self.show_default_tab = show_default_tab
        self.title_override = title_override
        self.web = web
        self.title = "OpenEnv Environment HTTP API"
        self.version = "1.0.0"
        self.description = ""
        if mode is None:
            mode = os.environ.get("OPENENV_MODE", ServerMode.SIMULATION.value)
        self.mode = _mode(mode)

    def check_concurrency(self, env_cls):
        """Raises where several sessions were asked for and the class of the instances cannot hold them.

        For factories: their class is known with the first instance only, and none is made just to look at it.
        """
        _check_concurrency(env_cls, self.concurrency.max_concurrent_envs)

    def __getattr__(self, name):
        if name in _APPLICATION_NAMES:
            raise OwnRoutesError(name)
        raise AttributeError("'EnvApp' object has no attribute %r; %s" % (name, _missing.HINT))

    def __setattr__(self, name, value):
        """Lets a package set what it likes, except parts of the web application."""
        if name in _APPLICATION_NAMES:
            raise OwnRoutesError(name)
        object.__setattr__(self, name, value)

    def __call__(self, *args, **kwargs):
        """What a web server or a test client does with an application."""
        raise OwnRoutesError("app(...)")

    def __repr__(self):
        """Names the environment."""
        return "<EnvApp %s>" % self.env_name


class HTTPEnvServer:
    """The description of a server: a factory of environments with its models and limits."""

    def __init__(
        self,
        env,
        action_cls,
        observation_cls,
        max_concurrent_envs=None,
        concurrency_config=None,
        env_name=None,
        state_cls=State,
        *,
        reset_observation_cls=None
    ):
        """Refuses an instance for ``env``, two ways of limiting at once, and several sessions of a class that holds one."""
        if not callable(env):
            raise TypeError(
                "env must be a callable (class or factory function), got %s. Pass the environment class "
                "(e.g., MyEnvironment) not an instance (e.g., MyEnvironment())." % type(env)
            )
        if max_concurrent_envs is not None and concurrency_config is not None:
            raise ValueError(
                "Cannot specify both 'max_concurrent_envs' and 'concurrency_config'. "
                "Please use only one method to configure concurrency."
            )
        if concurrency_config is None:
            concurrency_config = ConcurrencyConfig(max_concurrent_envs=1 if max_concurrent_envs is None else max_concurrent_envs)
        self._env_factory = env
        self._concurrency_config = concurrency_config
        env_cls = env.func if isinstance(env, functools.partial) else env
        if inspect.isclass(env_cls):
            _check_concurrency(env_cls, concurrency_config.max_concurrent_envs)
        self.action_cls = action_cls
        self.observation_cls = observation_cls
        self.reset_observation_cls = reset_observation_cls or observation_cls
        self.state_cls = state_cls
        self.env_name = env_name or getattr(env, "__name__", "environment")
        self.app = None

    @property
    def max_concurrent_envs(self):
        """Sessions at a time."""
        return self._concurrency_config.max_concurrent_envs

    @property
    def concurrency_config(self):
        """What the arguments come to."""
        return self._concurrency_config

    @property
    def is_concurrency_safe(self):
        """Whether the class says that its instances may live side by side; for a factory function, False until known."""
        env = self._env_factory.func if isinstance(self._env_factory, functools.partial) else self._env_factory
        return bool(getattr(env, "SUPPORTS_CONCURRENT_SESSIONS", False))

    def register_routes(self, app, mode=ServerMode.SIMULATION):
        """Takes over an application of ``create_app``; any other belongs to a web framework, and is refused."""
        mode = _mode(mode)
        if not isinstance(app, EnvApp):
            raise OwnRoutesError("register_routes(%s)" % type(app).__name__)
        app.server = self
        app.env = self._env_factory
        app.action_cls = self.action_cls
        app.observation_cls = self.observation_cls
        app.state_cls = self.state_cls
        app.reset_observation_cls = self.reset_observation_cls
        app.env_name = self.env_name
        app.max_concurrent_envs = None
        app.concurrency_config = app.concurrency = self._concurrency_config
        app.mode = mode
        self.app = app

    def __getattr__(self, name):
        raise AttributeError("envharness's light openenv has no `HTTPEnvServer.%s`; %s" % (name, _missing.HINT))


def create_app(
    env,
    action_cls,
    observation_cls,
    env_name=None,
    max_concurrent_envs=None,
    concurrency_config=None,
    gradio_builder=None,
    custom_tab_name="Custom",
    custom_tab_primary=False,
    show_default_tab=True,
    title_override=None,
    state_cls=State,
    *,
    mode=None,
    reset_observation_cls=None
):
    """Describes an environment's server, with the web interface where ENABLE_WEB_INTERFACE asks for it."""
    return _create(
        EnvApp(
            env,
            action_cls,
            observation_cls,
            env_name,
            max_concurrent_envs,
            concurrency_config,
            gradio_builder,
            custom_tab_name,
            custom_tab_primary,
            show_default_tab,
            title_override,
            state_cls,
            mode,
            reset_observation_cls,
            web=os.environ.get("ENABLE_WEB_INTERFACE", "false").lower() in ("true", "1", "yes"),
        )
    )


def create_fastapi_app(
    env,
    action_cls,
    observation_cls,
    max_concurrent_envs=None,
    concurrency_config=None,
    env_name=None,
    state_cls=State,
    *,
    mode=None,
    reset_observation_cls=None
):
    """Describes an environment's server without a web interface."""
    return _create(
        EnvApp(
            env,
            action_cls,
            observation_cls,
            env_name=env_name,
            max_concurrent_envs=max_concurrent_envs,
            concurrency_config=concurrency_config,
            state_cls=state_cls,
            mode=mode,
            reset_observation_cls=reset_observation_cls,
        )
    )


def _create(app):
    _created.append(app)
    return app


def _mode(mode):
    if isinstance(mode, ServerMode):
        return mode
    try:
        return ServerMode(mode.lower())
    except ValueError:
        raise ValueError("Invalid mode: '%s'. Must be one of: %s" % (mode, [m.value for m in ServerMode])) from None


def _check_concurrency(env_cls, sessions):
    if sessions > 1 and not getattr(env_cls, "SUPPORTS_CONCURRENT_SESSIONS", False):
        raise ConcurrencyConfigurationError(environment_name=env_cls.__name__, max_concurrent_envs=sessions)


def __getattr__(name):
    raise _missing.name(__name__, name)
