"""``python -m envharness``: the command line, in this interpreter."""

import sys

from envharness._native import cli_main

if __name__ == "__main__":
    sys.exit(cli_main(["envharness", *sys.argv[1:]], sys.executable))
