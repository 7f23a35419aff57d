"""Started by path, with the interpreter of the target: puts what is needed on the path and begins."""

import os
import sys


def start():
    here = os.path.dirname(os.path.abspath(__file__))
    root = os.path.dirname(os.path.dirname(here))
    # The folder of this script is no place to import from.
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry or ".") != here]
    if root not in sys.path:
        sys.path.append(root)
    from envharness_guest.serve.template import main

    main()


if __name__ == "__main__":
    start()
