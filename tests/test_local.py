"""Environments without a network: in worker processes of this process, and native ones on the caller's thread."""

from __future__ import annotations

import asyncio
import os

import numpy as np
import pytest
from clients import until
from serving import ENVS, WITH, descendants, store_fixture  # noqa: F401
from vectors import module_fixture, parts, plant_fixture  # noqa: F401

import envharness as eh

pytest.importorskip("gymnasium")


def test_local_environments(module, store):
    for target, options in ((module.Drift, {}), ("gym:CartPole-v1", {}), (module.Drift, {"workers": 1, "max_sessions": 5, "max_message_size": 2**20})):
        with eh.local(target, 3, encoding="json", **options) as envs:
            assert envs.reset(seeds=1).observations.dtype == np.float32
            assert not envs.step(np.zeros((3, *envs.action_space.shape), envs.action_space.dtype)).errors
    with eh.local(ENVS / "dice", 2, packages=[f"pydantic{WITH[1][8:]}"], request_timeout=120.0) as envs:
        assert envs.num_envs == 2 and not envs.reset(seeds=1).errors
    before = set(descendants(os.getpid()))
    envs = eh.local(module.Switch, 2, autoreset="disabled")
    assert set(descendants(os.getpid())) - before
    envs.close()
    envs.close()
    until(lambda: set(descendants(os.getpid())) <= before, "the end of the workers")
    for call in (envs.reset, envs.recv, envs.render, lambda: envs.step([0, 0]), lambda: envs.send([0, 0])):
        with pytest.raises(eh.ClientError, match="the client is closed"):
            call()


def test_local_native_environments():
    with eh.local("native:cartpole", in_process=True) as inside, eh.local("native:cartpole", in_process=False) as outside:
        assert inside.contract["action"] == outside.contract["action"] and inside.encoding == outside.encoding == "tensor"
        assert parts(inside.reset(seeds=1)) == parts(outside.reset(seeds=1))
        for envs in (inside, outside):
            with pytest.raises(eh.NotAvailableError):
                envs.render()
            envs.send([1])
            assert envs.recv().slots.tolist() == [0]
    with eh.local("native:grid_world", 2) as envs:
        assert envs.encoding == "json" and "observation" not in envs.reset().observations[0]
        assert set(envs.step([{"action": "UP"}, {"action": 5}]).errors) == {1}
    assert asyncio.run(inside_a_loop()) == [0, 1]
    for error, target, options in (
        (ValueError, "gym:CartPole-v1", {"in_process": True}),
        (TypeError, "native:cartpole", {"workers": 1}),
        (eh.ServeError, "native:nothing", {}),
        (eh.ServeError, "native:nothing", {"in_process": False}),
        (ValueError, "native:cartpole", {"num_envs": 0}),
        (ValueError, "native:cartpole", {"autoreset": "never"}),
        (ValueError, "native:cartpole", {"encoding": "xml"}),
        (eh.ClientError, "native:echo", {"encoding": "tensor"}),
    ):
        with pytest.raises(error):
            eh.local(target, **options)


async def inside_a_loop() -> list[int]:
    async with eh.local("native:cartpole", 2) as envs:
        await envs.areset(1)
        await envs.astep([0, 1])
        envs.send([0, 1])
        return (await envs.arecv(2)).slots.tolist()
