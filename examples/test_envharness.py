"""One environment: made from task_spec.yaml, entered, used, left. Run it with `python test_envharness.py [SPEC] [STEPS]`."""

import sys
from pathlib import Path

import envharness as eh

SPEC = Path(__file__).parent / "task_spec.yaml"


def main(spec_path=SPEC, steps=0):
    """Prints what the environment holds, and trains for some steps when asked to."""
    task_spec = eh.load_spec(spec_path)
    with eh.get_context(task_spec) as ctx:
        print(f"Environment activated: {ctx.id}")
        print(f"Python path: {sys.executable}")

        import gymnasium as gym
        import stable_baselines3 as sb3
        import torch

        print(f"gymnasium=={gym.__version__}")
        print(f"stable-baselines3=={sb3.__version__}")
        print(f"torch=={torch.__version__.partition('+')[0]}")
        if steps:
            env = gym.make("Pendulum-v1")
            model = sb3.SAC("MlpPolicy", env, verbose=1)
            model.learn(total_timesteps=steps)
            print(f"Trained for {model.num_timesteps} steps")
    print("Context ended, clean-up done.")


if __name__ == "__main__":
    main(*sys.argv[1:2], *(int(steps) for steps in sys.argv[2:3]))
