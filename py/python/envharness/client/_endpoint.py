"""A server's address and the settings of connections to it."""

from __future__ import annotations

import json
import os
import urllib.request
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from envharness import _native

#: The names of settings, with what they are by default.
DEFAULTS: dict[str, Any] = {
    "token": None,
    "headers": None,
    "connect_timeout": 10.0,
    "ping_interval": 20.0,
    "ping_timeout": 20.0,
    "reconnect_timeout": 60.0,
    "max_message_size": 100 * 1024 * 1024,
    "proxy": "auto",
    "tls_ca": None,
    "protocol": "auto",
    "contract": None,
}


def endpoint(server: Any, settings: Mapping[str, Any]) -> _native.Endpoint:
    """The native endpoint of an address, or of an object with a ``url``.

    Raises:
        TypeError: A setting that there is none of.
        ValueError: An address or a setting that is none.
    """
    unknown = sorted(set(settings) - set(DEFAULTS))
    if unknown:
        raise TypeError(f"there is no setting {unknown[0]!r}; there are {', '.join(DEFAULTS)}")
    given = {**DEFAULTS, **settings}
    address = server if isinstance(server, str) else getattr(server, "url", None)
    if not isinstance(address, str):
        raise TypeError(f"a server is an address or something with a url, not a {type(server).__name__}")
    given["headers"] = [(str(name), str(value)) for name, value in dict(given["headers"] or {}).items()]
    given["proxy"] = _proxy(address, given["proxy"])
    if given["max_message_size"] is not None and given["max_message_size"] < 1:
        raise ValueError(f"max_message_size={given['max_message_size']} is no number of bytes")
    if given["tls_ca"] is not None:
        given["tls_ca"] = os.fspath(given["tls_ca"])
    given["contract"] = _digest(given["contract"])
    return _native.Endpoint(address, given)


def _digest(contract: Any) -> str | None:
    """The digest of a contract: as it is, of a mapping, or of a file that ``envharness contract show`` wrote."""
    if contract is None or (isinstance(contract, str) and contract.startswith("sha256:")):
        return contract
    if isinstance(contract, Mapping):
        return contract["digest"]
    with open(contract, encoding="utf-8") as file:  # noqa: PTH123
        return json.load(file)["digest"]


def _proxy(address: str, wanted: str | None) -> str | None:
    """The proxy to use; the environment's where that is asked for."""
    if wanted != "auto":
        return wanted
    try:
        parts = urlsplit(address if "://" in address else f"ws://{address}")
    except ValueError:
        # What is wrong with it is said where it is read.
        return None
    if not parts.hostname or urllib.request.proxy_bypass(parts.hostname):
        return None
    proxies = urllib.request.getproxies()
    return proxies.get("https" if parts.scheme in ("wss", "https") else "http") or proxies.get("all")
