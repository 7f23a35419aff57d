"""Real programs for the rigger's tests: single files out of source archives on PyPI, taken alone, without their metadata.

An archive is found by ``uv pip compile --format pylock.toml``, fetched and compared with the hash that the index has for it, and kept in
the tests' download cache.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tarfile
import tomllib
import urllib.request
from dataclasses import dataclass
from pathlib import Path

UV = Path(sys.executable).parent / "uv"


@dataclass(frozen=True)
class Program:
    """A program, and the check that says it works."""

    archive: str
    path: str
    #: Words after ``--``; `{}` is the program. Empty: the imports are the check.
    check: tuple[str, ...] = ("python", "{}")
    #: What the imports must not have been answered with; what they must.
    distributions: tuple[str, ...] = ()
    #: Further files of the archive that belong to the program.
    beside: tuple[str, ...] = ()
    #: One of those that every run of the tests tries.
    ci: bool = False
    #: The program needs this in its environment to end by itself.
    env: tuple[tuple[str, str], ...] = (("MPLBACKEND", "Agg"), ("SDL_VIDEODRIVER", "dummy"), ("SDL_AUDIODRIVER", "dummy"))

    @property
    def name(self) -> str:
        return f"{self.archive.replace('==', '-')}:{Path(self.path).name}"


def fetch(archive: str, cache: Path) -> Path:
    """The source archive of a pinned release."""
    folder = cache / "programs"
    folder.mkdir(parents=True, exist_ok=True)
    kept = folder / f"{archive.replace('==', '-')}.tar.gz"
    if kept.is_file():
        return kept
    command = [UV, "pip", "compile", "-", "--format", "pylock.toml", "--no-deps", "--no-header", "--quiet", "--python", sys.executable]
    done = subprocess.run(command, input=archive + "\n", capture_output=True, text=True, check=True)
    (package,) = tomllib.loads(done.stdout)["packages"]
    source = package["sdist"]
    with urllib.request.urlopen(source["url"]) as reply:
        data = reply.read()
    assert hashlib.sha256(data).hexdigest() == source["hashes"]["sha256"], archive
    partial = kept.with_suffix(f".{os.getpid()}")
    partial.write_bytes(data)
    partial.replace(kept)
    return kept


def take(program: Program, folder: Path, cache: Path) -> Path:
    """Puts a program into an empty folder; its files keep their times."""
    folder.mkdir(parents=True, exist_ok=True)
    wanted = {program.path, *program.beside}
    with tarfile.open(fetch(program.archive, cache)) as archive:
        for member in archive.getmembers():
            relative = member.name.split("/", 1)[-1]
            if relative in wanted and (file := archive.extractfile(member)):
                target = folder / Path(relative).name
                target.write_bytes(file.read())
                os.utime(target, (member.mtime, member.mtime))
                wanted.discard(relative)
    assert not wanted, f"{program.archive} has no {wanted}"
    return folder / Path(program.path).name


#: Single files of 2019 to today: numerics, statistics, plotting, learning, evolution, graphs, web, storage, simulation.
PROGRAMS: list[Program] = [
    Program("networkx==2.5", "examples/drawing/plot_degree_histogram.py", distributions=("networkx", "matplotlib"), ci=True),
    Program("networkx==2.5", "examples/advanced/plot_eigenvalues.py", distributions=("networkx", "matplotlib", "numpy", "scipy")),
    Program("networkx==2.6.3", "examples/algorithms/plot_parallel_betweenness.py", distributions=("networkx", "matplotlib", "scipy", "numpy")),
    Program("scikit-learn==0.24.2", "examples/ensemble/plot_gradient_boosting_quantile.py", distributions=("scikit-learn", "matplotlib", "numpy")),
    Program("scikit-learn==0.24.2", "examples/ensemble/plot_gradient_boosting_regularization.py", distributions=("scikit-learn", "matplotlib", "numpy")),
    Program("scikit-learn==1.9.1", "examples/decomposition/plot_incremental_pca.py", distributions=("scikit-learn", "matplotlib", "numpy")),
    Program("statsmodels==0.12.2", "examples/python/kernel_density.py", distributions=("statsmodels", "matplotlib", "numpy", "scipy", "pandas")),
    Program("statsmodels==0.12.2", "examples/python/ols.py", distributions=("statsmodels", "matplotlib", "numpy", "pandas")),
    Program("aiohttp==3.7.4", "examples/background_tasks.py", check=(), distributions=("aiohttp", "aioredis"), ci=True),
    Program(
        "imbalanced-learn==0.8.0", "examples/api/plot_sampling_strategy_usage.py",
        distributions=("imbalanced-learn", "matplotlib", "numpy", "scikit-learn", "seaborn"),
    ),
    Program("control==0.9.0", "examples/cruise-control.py", distributions=("control", "matplotlib", "numpy")),
    Program("lmfit==1.0.2", "examples/example_brute.py", distributions=("lmfit", "matplotlib", "numpy")),
    Program("h5py==3.1.0", "examples/dataset_concatenation.py", distributions=("h5py", "numpy"), ci=True),
    Program("deap==1.3.1", "examples/ga/onemax_numpy.py", distributions=("deap", "numpy"), ci=True),
    Program("pulp==2.4", "examples/BeerDistributionProblem.py", distributions=("pulp", "numpy"), ci=True),
    Program("simpy==4.1.2", "docs/examples/code/carwash.py", distributions=("simpy",), ci=True),
    Program("xlsxwriter==3.3.1", "examples/pandas_chart_columns.py", distributions=("xlsxwriter", "pandas"), ci=True),
    Program("altair==4.2.2", "altair/examples/scatter_tooltips.py", distributions=("altair", "vega-datasets"), ci=True),
    Program("sqlalchemy==1.4.54", "examples/vertical/dictlike.py", distributions=("sqlalchemy",)),
    Program("pywavelets==1.1.1", "demo/dwt_signal_decomposition.py", distributions=("pywavelets", "matplotlib", "numpy")),
    Program("sympy==1.8", "examples/intermediate/vandermonde.py", distributions=("sympy",)),
    Program("gevent==26.9.0", "examples/threadpool.py", distributions=("gevent",)),
    Program("falcon==4.4.0", "examples/recipes/msgspec_main.py", check=(), distributions=("falcon", "msgspec")),
    Program("werkzeug==1.0.1", "examples/shortly/shortly.py", check=(), distributions=("werkzeug", "jinja2", "redis")),
    Program(
        "simple-rl==0.811", "examples/simple_example.py",
        distributions=("simple-rl", "numpy", "matplotlib"), beside=("examples/srl_example_setup.py",),
    ),
]


@dataclass(frozen=True)
class Broken:
    """A spec that does not work, and the check that says when it does."""

    name: str
    spec: str
    check: tuple[str, ...]
    #: Whether every run of the tests tries it.
    ci: bool = False


def _python(code: str) -> tuple[str, ...]:
    return ("python", "-c", code)


BROKEN = [
    Broken("dead-pin", "python: '3.11'\ndeps: [numpy==1.26.99]\n", _python("import numpy; assert numpy.__version__.startswith('1.26')")),
    Broken("numpy-2-trap", "python: '3.11'\ndeps: [numpy==2.0.2, pandas==2.0.3]\n", _python("import pandas; pandas.DataFrame([1])"), ci=True),
    Broken("python-too-new", "python: '3.12'\ndeps: [numpy==1.21.6]\n", _python("import numpy")),
    Broken("conflicting-pins", "python: '3.9'\ndeps: [flask==1.1.4, jinja2==3.1.2]\n", _python("import flask")),
    Broken("fallen-below", "python: '3.9'\ndeps: [flask==1.1.4, markupsafe]\n", _python("import flask"), ci=True),
    Broken("name-that-is-gone", "python: '3.11'\ndeps: [scipy]\n", _python("from scipy.integrate import simps; simps([1, 2, 3])")),
    Broken("squatter", "python: '3.11'\ndeps: [sklearn]\n", _python("import sklearn.linear_model")),
    Broken("part-that-is-gone", "python: '3.11'\ndeps: [setuptools]\n", _python("import pkg_resources"), ci=True),
    Broken("python-without-a-module", "python: '3.13'\ndeps: [six==1.16.0]\n", _python("import cgi, six")),
    Broken("extra-not-asked-for", "python: '3.11'\ndeps: [pandas==2.2.3]\n", _python("import pandas; pandas.DataFrame([1]).to_excel('x.xlsx')")),
]
