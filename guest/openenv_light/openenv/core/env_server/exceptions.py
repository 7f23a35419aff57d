"""Errors of servers and environments. Their texts are seen by peers on the wire."""

from ... import _missing


class OpenEnvError(Exception):
    """Base of the family."""


class ConcurrencyConfigurationError(OpenEnvError):
    """Several sessions were asked of a class that does not say it can hold them."""

    def __init__(self, environment_name, max_concurrent_envs, message=None):
        """Keeps both facts; ``message`` replaces the text."""
        self.environment_name = environment_name
        self.max_concurrent_envs = max_concurrent_envs
        super().__init__(
            message
            or "Environment '%s' is not marked as SUPPORTS_CONCURRENT_SESSIONS. Cannot run with max_concurrent_envs=%s. "
            "Either set max_concurrent_envs=1 or ensure the environment properly isolates session state and set "
            "SUPPORTS_CONCURRENT_SESSIONS=True." % (environment_name, max_concurrent_envs)
        )


class SessionCapacityError(OpenEnvError):
    """The server is full."""

    def __init__(self, active_sessions, max_sessions, message=None):
        """Keeps both counts; ``message`` replaces the text."""
        self.active_sessions = active_sessions
        self.max_sessions = max_sessions
        super().__init__(
            message
            or "Server at capacity: %s/%s sessions active. Cannot accept new connections." % (active_sessions, max_sessions)
        )


class SessionNotFoundError(OpenEnvError):
    """No session has this id."""

    def __init__(self, session_id, message=None):
        """Keeps the id; ``message`` replaces the text."""
        self.session_id = session_id
        super().__init__(message or "Session '%s' not found." % session_id)


class SessionCreationError(OpenEnvError):
    """A session could not be started."""

    def __init__(self, reason, message=None):
        """Keeps the reason; ``message`` replaces the text."""
        self.reason = reason
        super().__init__(message or "Failed to create session: %s" % reason)


class EnvironmentFactoryError(OpenEnvError):
    """The factory gave no environment."""

    def __init__(self, factory_name, message=None):
        """Keeps the factory's name; ``message`` replaces the text."""
        self.factory_name = factory_name
        super().__init__(message or "Environment factory '%s' failed to create instance." % factory_name)


class OwnRoutesError(AttributeError, OpenEnvError):
    """The package wants the web application itself, which the light openenv does not build."""

    def __init__(self, what):
        """``what`` is the attribute or call that was asked for."""
        self.what = what
        super().__init__(
            "`%s` asks for the web application of openenv's server, and envharness's light openenv builds none; %s"
            % (what, _missing.HINT)
        )


def __getattr__(name):
    raise _missing.name(__name__, name)
