"""`envharness.gym` on real servers: gymnasium's own checks and vectors, packages, stock servers, failures, training."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest
from clients import sessions_of, until
from conftest import CACHE, MINOR, need_python
from serving import run_stock, store_fixture, venv  # noqa: F401
from vectors import module_fixture, orchards_fixture, plant_fixture, served_fixture  # noqa: F401

gymnasium = pytest.importorskip("gymnasium")
np = pytest.importorskip("numpy")

import envharness as eh  # noqa: E402
import envharness.gym as eg  # noqa: E402
from gymnasium import spaces  # noqa: E402
from gymnasium.utils.env_checker import check_env  # noqa: E402
from test_gym import equal, needs_vector, same  # noqa: E402

MODES = ["next_step", "same_step", "disabled"]


def checked(env: gymnasium.Env, **options: Any) -> None:
    """Gymnasium's checker passes, and says nothing but that bounds are wide."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        check_env(env, **options)
    env.close()
    told = [str(warning.message) for warning in caught]
    assert not [text for text in told if "infinity" not in text], told


@pytest.mark.parametrize("target", ["gym:CartPole-v1", "native:cartpole", "plant:Drift", "plant:Chest"])
def test_gymnasiums_checker_passes(target, served):
    server = served(target)
    # Gymnasium's own pictures need pygame.
    checked(eg.make(server.ws_url), skip_render_check=target.startswith("gym:"))
    until(lambda: sessions_of(server) == 0, "the end of the sessions")


@pytest.mark.parametrize("kind", ["Drift", "Grid", "Chest"])
def test_a_remote_environment_is_the_local_one(kind, served, module):
    env, local = eg.make(served(f"plant:{kind}").url), getattr(module, kind)()
    assert env.observation_space == local.observation_space and env.action_space == local.action_space
    env.action_space.seed(2)
    for seed in (3, None):
        assert equal(env.reset(seed=seed, options={"a": 1}), local.reset(seed=seed, options={"a": 1}))
        ended = False
        while not ended:
            action = env.action_space.sample()
            ours, theirs = env.step(action), local.step(action)
            assert equal(ours, theirs)
            ended = ours[2] or ours[3]
    assert env.state()["step_count"] > 0
    env.close()


@needs_vector
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("target", ["gym:CartPole-v1", "plant:Drift", "plant:Grid", "plant:Chest"])
def test_a_vector_is_gymnasiums_own(target, mode, served, module):
    where, _, name = target.partition(":")
    make = getattr(module, name) if where == "plant" else lambda: gymnasium.make(name, disable_env_checker=True)
    ours = eg.make_vec(served(target).url, 3, autoreset_mode=mode)
    theirs = gymnasium.vector.SyncVectorEnv([make] * 3, autoreset_mode=ours.autoreset_mode)
    for name in ("action_space", "observation_space", "single_action_space", "single_observation_space", "num_envs"):
        assert getattr(ours, name) == getattr(theirs, name), name
    assert same(ours.reset(seed=7), theirs.reset(seed=7))
    theirs.action_space.seed(1)
    ends = 0
    for _ in range(80):
        actions = theirs.action_space.sample()
        left, right = ours.step(actions), theirs.step(actions)
        assert same(left, right), (left, right)
        ended = right[2] | right[3]
        ends += ended.sum()
        if mode == "disabled" and ended.any():
            mask = {"reset_mask": ended}
            assert same(ours.reset(options=mask), theirs.reset(options=dict(mask)))
            seeds = [1, None, 3]
            assert same(ours.reset(seed=seeds, options=mask), theirs.reset(seed=seeds, options=dict(mask)))
    assert ends > 3
    assert same(ours.reset(seed=[1, 2, 3]), theirs.reset(seed=[1, 2, 3]))
    ours.close()
    theirs.close()


@needs_vector
@pytest.mark.parametrize("mode", MODES)
def test_a_worker_that_is_killed(mode, served):
    server = served("plant:Switch", "--concurrency", "process")
    for on_error in ("raise", "info"):
        envs = eg.make_vec(server.url, 3, autoreset_mode=mode, on_error=on_error)
        pids = envs.reset()[0][:, 0].tolist()
        if on_error == "raise":
            with pytest.raises(eg.VectorStepError, match="1 of 3 slots failed") as caught:
                envs.step(np.array([0, 2, 0]))
            assert isinstance(caught.value.errors[1], eh.SessionLost)
            result = caught.value.result
        else:
            result = envs.step(np.array([0, 2, 0]))
        observations, rewards, terminated, truncated, infos = result
        assert observations.tolist() == [[pids[0], 1], [0, 0], [pids[2], 1]] and np.isnan(rewards).tolist() == [False, True, False]
        assert not terminated.any() and truncated.tolist() == [False, True, False] and "final_obs" not in infos
        assert isinstance(infos["error"][1], eh.SessionLost) and infos["_error"].tolist() == [False, True, False]
        if mode == "disabled":
            with pytest.raises(gymnasium.error.ResetNeeded):
                envs.step(np.array([0, 0, 0]))
            observations, _ = envs.reset(options={"reset_mask": truncated})
            assert observations[:, 1].tolist() == [1, 0, 1]
        else:
            observations, rewards, _, truncated, infos = envs.step(np.array([0, 0, 0]))
            assert observations[:, 1].tolist() == [2, 0, 2] and rewards.tolist() == [1, 0, 1] and not truncated.any() and not infos
        assert observations[1, 0] not in pids and observations[[0, 2], 0].tolist() == [pids[0], pids[2]]
        envs.close()


# Packages, whose schemas decide.


def walk(env: gymnasium.Env) -> list[Any]:
    heard = [env.reset(seed=5, options={"at": 1})]
    for move in (2, 1, 2, 0, 1, 1, 2):
        heard.append(env.step(move))
        if heard[-1][2] or heard[-1][3]:
            heard.append(env.reset(seed=6))
    return heard


def test_a_package_and_a_stock_server_give_the_five_values(orchards):
    ours, stock = orchards
    heard = {}
    for url in (ours, stock):
        env = eg.make(url)
        assert env.action_space == spaces.Discrete(3)
        apples = spaces.Box(-np.inf, np.inf, (2,), np.float64)
        assert env.observation_space == spaces.Dict({"at": spaces.Discrete(5), "ripe": spaces.Discrete(2), "apples": apples})
        assert env.metadata == {"render_modes": []}
        if url == stock:
            # It tells nothing of its reset, and its environment takes no options.
            env.contract["reset"] = {"properties": {"at": {}}}
        heard[url] = walk(env)
        first, _, stayed = heard[url][:3]
        assert equal(first[0]["at"], np.int64(1)) and stayed[1] == 0.0 and stayed[4]["reward_missing"] is True
        assert [step[2:4] for step in heard[url] if len(step) == 5][5] == (False, True)
        env.close()
        checked(eg.make(url))
        for options in ({"render_mode": "ansi"}, {"render_mode": "human"}):
            with pytest.raises(eh.NotAvailableError, match=f"no render mode `{options['render_mode']}`; there are: none"):
                eg.make(url, **options)
    assert equal(heard[ours], heard[stock])
    with pytest.raises(eh.NotAvailableError, match="takes no options"):
        eg.make(stock, open_options={"size": 3})


@needs_vector
def test_a_vector_of_packages(orchards):
    ours, stock = orchards
    for mode in MODES:
        vectors = [eg.make_vec(url, 2, autoreset_mode=mode) for url in (ours, stock)]
        one, other = (envs.reset(seed=4) for envs in vectors)
        assert same(one, other)
        for step in range(6):
            actions = np.array([1, 2 if step < 2 else 0])
            one, other = (envs.step(actions) for envs in vectors)
            assert same(one, other), (one, other)
            if mode == "disabled" and one[2].any():
                for envs in vectors:
                    envs.reset(options={"reset_mask": one[2]})
            if step == 1:
                assert one[2].tolist() == [False, True] and one[1][0] == 0 and one[4]["reward_missing"].tolist() == [True, False]
                if mode == "same_step":
                    assert one[0]["at"].tolist() == [2, 2] and one[4]["final_obs"][1]["at"] == 4
        assert one[3].tolist() == [True, False] and "metadata" in (one[4]["final_info"] if mode == "same_step" else one[4])
        for envs in vectors:
            envs.close()
    decode = lambda observation: np.array([observation["at"]], np.float32)  # noqa: E731
    space = spaces.Box(0, 4, (1,), np.float32)
    envs = eg.make_vec([ours, stock], 3, observation_space=space, decode=decode, action_space=spaces.Discrete(2), encode=lambda n: {"move": ["left", "right"][n]})
    assert envs.reset()[0].tolist() == [[2], [2], [2]] and envs.step(np.array([0, 1, 1]))[0].tolist() == [[1], [3], [3]]
    envs.close()
    with pytest.raises(eh.NotAvailableError, match="takes no options"):
        eg.make_vec(stock, 1, open_options={"size": 3})


@needs_vector
def test_a_space_of_ones_own_for_what_travels_raw(served):
    url = served("plant:Drift").url
    plain = eg.make_vec(url, 2)
    space = spaces.Box(-100, 100, (3,), np.float64)
    changed = eg.make_vec(url, 2, decode=lambda seen: np.array(seen["observation"]) * 2, observation_space=space)
    given = eg.make_vec(url, 2, observation_space=spaces.Dict({"observation": spaces.Box(-np.inf, np.inf, (3,), np.float32)}))
    encoded = eg.make_vec(url, 2, action_space=spaces.Discrete(2), encode=lambda n: {"action": [float(n), 0.0]})
    seen = [envs.reset(seed=1)[0] for envs in (plain, changed, given, encoded)]
    assert (seen[1] == seen[0].astype(np.float64) * 2).all() and (seen[2]["observation"] == seen[0]).all() and (seen[3] == seen[0]).all()
    ones = np.array([[1, 0]] * 2, np.float32)
    steps = [plain.step(ones), changed.step(ones), given.step(ones), encoded.step(np.array([1, 1]))]
    assert all((step[1] == steps[0][1]).all() for step in steps) and steps[0][1].all()
    for envs in (plain, changed, given, encoded):
        envs.close()


# Addresses, ids, pictures.


def test_addresses_of_other_kinds(tmp_path, store):
    with eh.serve("native:cartpole", host=f"unix:{tmp_path / 'env.sock'}") as server:
        env = eg.make(server.url)
        assert env.reset(seed=1)[0].shape == (4,)
        env.close()
        if hasattr(gymnasium.vector, "AutoresetMode"):
            envs = eg.make_vec(server.url, 2)
            assert envs.reset(seed=1)[0].shape == (2, 4)
            envs.close()
    checked(eg.make("native:cartpole"))


@pytest.mark.filterwarnings("default")
def test_environments_by_their_ids(served):
    server = served("gym:CartPole-v1")
    env = gymnasium.make("envharness.gym:envharness/Remote-v0", url=server.ws_url)
    assert isinstance(env.unwrapped, eg.RemoteEnv) and env.reset(seed=3)[0].shape == (4,)
    env.close()
    env = gymnasium.make("envharness.gym:envharness/CartPole-v0")
    assert env.reset(seed=3)[0].shape == (4,) and env.step(env.action_space.sample())[1] == 1.0
    env.close()
    if hasattr(gymnasium.vector, "AutoresetMode"):
        for id, options in (("CartPole-v0", {}), ("Remote-v0", {"url": server.url})):
            envs = gymnasium.make_vec(f"envharness.gym:envharness/{id}", num_envs=2, **options)
            wrapped = gymnasium.wrappers.vector.RecordEpisodeStatistics(envs)
            wrapped.reset(seed=1)
            for _ in range(5):
                assert wrapped.step(wrapped.action_space.sample())[1].tolist() == [1, 1]
            wrapped.close()


def test_pictures(served):
    url = served("plant:Drift").url
    env = eg.make(url, render_mode="rgb_array")
    left = env.reset(seed=1)[1]["left"]
    assert env.render().shape == (2, 3, 3) and env.render()[0, 0, 0] == left and env.metadata["render_fps"] == 5
    env.close()
    with pytest.raises(eh.NotAvailableError, match="no render mode `human`; there are: rgb_array, ansi") as caught:
        eg.make(url, render_mode="human")
    assert "in a window here" in caught.value.hint
    lake = eg.make(served("gym:FrozenLake-v1").url, render_mode="ansi")
    lake.reset(seed=1)
    assert "SFFF" in lake.render().replace("\x1b[41mS\x1b[0m", "S")
    lake.close()
    if hasattr(gymnasium.vector, "AutoresetMode"):
        envs = eg.make_vec(url, 2, render_mode="ansi")
        left = envs.reset(seed=1)[1]["left"]
        assert envs.render() == tuple(f"left: {count}" for count in left)
        envs.close()
        envs = eg.make_vec(url, 2)
        with pytest.warns(UserWarning, match="without a render mode"):
            assert envs.render() is None
        envs.close()
        with pytest.raises(eh.NotAvailableError, match="no render mode `human`"):
            eg.make_vec([url, url], 2, render_mode="human")


# Training.

TRAIN = """
import json, sys
import gymnasium
from stable_baselines3 import PPO
from stable_baselines3.common.env_checker import check_env
from stable_baselines3.common.vec_env import DummyVecEnv

make = lambda: gymnasium.make("envharness.gym:envharness/Remote-v0", url=sys.argv[1])
check_env(make())
model = PPO("MlpPolicy", DummyVecEnv([make] * 4), n_steps=64, batch_size=64, n_epochs=2, seed=1, device="cpu")
before = model.policy.state_dict()["action_net.weight"].clone()
model.learn(512)
after = model.policy.state_dict()["action_net.weight"]
model.get_env().close()
print(json.dumps({"steps": model.num_timesteps, "learnt": bool((before != after).any()), "gymnasium": gymnasium.__version__}))
"""


def test_stable_baselines_trains_on_a_served_environment(served, tmp_path, monkeypatch):
    need_python("3.11")
    if MINOR not in ("3.9", "3.10", "3.11"):
        pytest.skip("torch 2.0.1 has no wheel for this Python")
    # Downloads are shared with the example scripts, which have the same versions.
    monkeypatch.setenv("UV_CACHE_DIR", str(CACHE / "uv"))
    python = venv("stable-baselines3", ("gymnasium==0.29.1", "stable-baselines3==2.2.1", "torch==2.0.1", "numpy<2"))
    (tmp_path / "envharness").symlink_to(Path(eh.__file__).parent)
    server = served("gym:CartPole-v1")
    told = run_stock(python, tmp_path, TRAIN, server.url)
    assert told == {"steps": 512, "learnt": True, "gymnasium": "0.29.1"}
    until(lambda: sessions_of(server) == 0, "the end of the sessions")
