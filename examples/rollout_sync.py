"""A loop as in a notebook: no event loop, one call a line.

Run it with `python rollout_sync.py`.
"""

from pathlib import Path

import envharness as eh

server = eh.serve(Path(__file__).parent / "guess")
env = eh.GenericEnvClient(server).sync()

result = env.reset(seed=7)
print(result.observation["hint"])
for number in range(1, 11):
    result = env.step({"number": number})
    print(number, result.observation["hint"], result.reward)
    if result.done:
        break
print(env.state())

try:
    env.step({"number": "many"})
except eh.InvalidAction as error:
    print(error)

env.close()
server.stop()
