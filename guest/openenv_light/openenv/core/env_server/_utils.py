"""Small helpers of the servers."""


def overrides_method(method, base_method):
    """Whether a bound method is another function than the base class's."""
    return getattr(method, "__func__", method) is not base_method
