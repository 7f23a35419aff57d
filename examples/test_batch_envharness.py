"""Two environments with different needs at once, from two threads. Run it with `python test_batch_envharness.py`."""

import concurrent.futures
import time

import envharness as eh

# A task may have further keys of a spec, `"more": {"backend": "conda", "channels": ["conda-forge"]}`.
# `ray[rllib]==2.5.1` requires `gymnasium==0.26.3`; with 0.29.1 beside it no versions fit, and the error says so.
TASKS = [
    {"name": "sb3_pendulum", "deps": ["gymnasium==0.29.1", "stable-baselines3==2.2.1"]},
    {"name": "ray_rllib_cartpole", "deps": ["gymnasium==0.26.3", "ray[rllib]==2.5.1"]},
]


def run_task(task, seconds=2.0):
    """Makes the environment of one task and works in it for a while; returns its name."""
    spec_obj = eh.create_spec(name=task["name"], pip_deps=task["deps"], **task.get("more", {}))
    with eh.get_context(spec_obj) as ctx:
        version = ctx.execute(["python", "-c", "import gymnasium; print(gymnasium.__version__)"])
        print(f"{task['name']}: {ctx.id} has gymnasium {str(version).strip()}", flush=True)
        time.sleep(seconds)
    return task["name"]


def main(tasks=TASKS):
    """Runs every task; one that fails does not stop the others."""
    completed, failed = [], []
    with concurrent.futures.ThreadPoolExecutor(max_workers=2) as pool:
        futures = {pool.submit(run_task, task): task["name"] for task in tasks}
        for future in concurrent.futures.as_completed(futures):
            try:
                completed.append(future.result())
            except eh.EnvHarnessError as error:
                failed.append(futures[future])
                print(f"{futures[future]} failed: {error}")
    print(f"All tasks completed: {sorted(completed)}")
    return completed, failed


if __name__ == "__main__":
    main()
