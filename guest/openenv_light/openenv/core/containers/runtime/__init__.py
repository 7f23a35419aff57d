"""Base classes of providers: what starts an environment server somewhere and gives its URL."""

from abc import ABC, abstractmethod

from .... import _missing

__all__ = ["ContainerProvider", "RuntimeProvider"]


class ContainerProvider(ABC):
    """Starts one server from an image."""

    @abstractmethod
    def start_container(self, image, port=None, env_vars=None, **kwargs):
        """Starts it and gives its base URL."""

    @abstractmethod
    def stop_container(self):
        """Stops and removes it."""

    @abstractmethod
    def wait_for_ready(self, base_url, timeout_s=30.0):
        """Returns once it answers; TimeoutError where it does not in time."""

    def close(self):
        """Lets go of what the provider itself holds."""

    def __enter__(self):
        """Gives the provider."""
        return self

    def __exit__(self, exc_type, exc, tb):
        """Closes the provider."""
        self.close()


class RuntimeProvider(ABC):
    """Starts one server from sources."""

    @abstractmethod
    def start(self, port=None, env_vars=None, **kwargs):
        """Starts it and gives its base URL."""

    @abstractmethod
    def stop(self):
        """Stops it."""

    @abstractmethod
    def wait_for_ready(self, timeout_s=30.0):
        """Returns once it answers; TimeoutError where it does not in time."""

    def __enter__(self):
        """Starts the server."""
        self.start()
        return self

    def __exit__(self, exc_type, exc, tb):
        """Stops the server."""
        self.stop()


def __getattr__(name):
    raise _missing.name(__name__, name)
