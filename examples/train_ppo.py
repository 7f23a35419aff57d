"""Stable-Baselines3 trains on a served environment: the trainer's packages and the environment's are rigged apart.

Run it with `python train_ppo.py [STEPS]`.
"""

import sys
from pathlib import Path

import envharness as eh


def main(steps=20_000):
    """Serves CartPole, trains on it, says how well it balances."""
    trainer = eh.load_spec(Path(__file__).parent / "task_spec.yaml")  # torch and stable-baselines3
    with eh.serve("gym:CartPole-v1", packages=["gymnasium==0.29.1"]) as server, eh.get_context(trainer):
        from stable_baselines3 import PPO
        from stable_baselines3.common.evaluation import evaluate_policy
        from stable_baselines3.common.monitor import Monitor

        from envharness.gym import make

        env = Monitor(make(server.url))
        model = PPO("MlpPolicy", env, n_steps=min(steps, 1024), batch_size=64, seed=1, device="cpu")
        model.learn(total_timesteps=steps)
        mean, deviation = evaluate_policy(model, env, n_eval_episodes=5)
        print(f"after {model.num_timesteps} steps the mean return is {mean:.0f} (deviation {deviation:.0f})")
        env.close()


if __name__ == "__main__":
    main(*map(int, sys.argv[1:2]))
