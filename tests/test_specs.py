"""Specs: every accepted shape, one canonical form; every wrong one, a useful refusal."""

import itertools
import json
import subprocess
import sys

import envharness as eh
import jsonschema
import pytest
from conftest import EXAMPLES, write
from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

FILE_FORM = """
    name: sb3_pendulum_training
    description: SAC on Pendulum
    environment:
      backend: venv
      dependencies:
        pip: [gymnasium==0.29.1, stable-baselines3==2.2.1, torch==2.0.1]
    resources:
      gpu: false
"""


def test_file_form_in_yaml_toml_and_json_and_as_a_dict_has_one_digest(home):
    yaml = eh.load_spec(write("a.yaml", FILE_FORM))
    mapping = {
        "name": "sb3_pendulum_training",
        "description": "SAC on Pendulum",
        "backend": "venv",
        "dependencies": {"pip": ["torch==2.0.1", "Stable_Baselines3 == 2.2.1", "gymnasium==0.29.1"]},
        "environment": {"resources": {"gpu": False}},
    }
    json_file = write("a.json", json.dumps(mapping))
    toml_file = write(
        "a.toml",
        """
        name = "sb3_pendulum_training"
        description = "SAC on Pendulum"
        backend = "virtualenv"
        [dependencies]
        pip = ["gymnasium==0.29.1", "stable-baselines3==2.2.1", "torch==2.0.1"]
        [resources]
        gpu = 0
        """,
    )
    specs = [yaml, eh.load_spec(json_file), eh.load_spec(toml_file), eh.load_spec_from_config(mapping)]
    assert len({spec.digest for spec in specs}) == 1
    assert len(set(specs)) == 1
    assert yaml.pip == ["gymnasium==0.29.1", "stable-baselines3==2.2.1", "torch==2.0.1"]


def test_written_back_as_yaml_it_is_the_same_spec(home):
    mapping = {
        "name": "my_agent_env",
        "python": "3.9",
        "dependencies": {"pip": ["numpy==1.24.3", "pandas==2.0.3"], "conda": ["cudatoolkit=11.8"], "channels": ["nvidia"]},
        "env_vars": {"OMP_NUM_THREADS": "4", "ODD": "yes: [no] #x", "EMPTY": "", "TRUE": "true"},
        "resources": {"gpu": 1, "memory": "8G", "cpus": 1.5, "timeouts": {"run": "2h", "idle": 30}},
        "secrets": {"TOKEN": {"command": ["pass", "show", "x"]}, "WANDB_API_KEY": None},
        "indexes": [{"name": "internal", "url": "https://example.org/simple"}],
        "exclude-newer": "2023-09-01",
        "writable": True,
        "tmp": "shared",
    }
    spec = eh.create_spec(**mapping)
    again = eh.load_spec(write("again.yaml", spec.to_yaml()))
    assert again.digest == spec.digest
    assert again.to_dict() == spec.to_dict()


def test_create_spec_builder_and_short_form_agree(home):
    deps = ["torch==1.13.1", "gymnasium[classic_control]"]
    built = eh.EnvSpecBuilder().name("rl_training").python("3.8")
    for dep in deps:
        built = built.pip_package(dep)
    built = built.conda_channel("pytorch").conda_package("pytorch-cuda=11.7").build()
    created = eh.create_spec("rl_training", deps, python="3.8", conda_deps=["pytorch-cuda=11.7"], channels=["pytorch"])
    assert built == created
    assert eh.create_spec(name="x", pip_deps=deps) == eh.load_spec_from_config({"name": "x", "deps": deps})
    assert built.pip == ["gymnasium[classic-control]", "torch==1.13.1"]


def test_config_takes_the_spec_and_leaves_the_tasks_own_keys(home):
    write("s.yaml", "name: x\ndeps: [six==1.16.0]\n")
    base = eh.load_spec("s.yaml")
    own = {"script_path": "./train.py", "output_path": "./out", "spec": "s.yaml"}
    assert eh.load_spec_from_config(own) == base
    assert eh.load_spec_from_config({**own, "spec": {"name": "x", "deps": ["six==1.16.0"]}}) == base
    with pytest.raises(eh.SpecError, match="dependencies"):
        eh.load_spec_from_config({"name": "x", "dependancies": {"pip": []}})
    with pytest.raises(eh.SpecError, match="holds no spec"):
        eh.load_spec_from_config({"script_path": "x"})


def test_requirements_with_includes_constraints_markers_and_options(home):
    write("more/base.txt", "six==1.16.0 \\\n    --hash=sha256:8abb2f1d86890a2dfb989f9a77cfcfd3e47c2a354b01111771326f8aa26e0254\n-r deeper.txt\n")
    write("more/deeper.txt", "idna>=3 ; python_version >= '3.8'  # a comment\n")
    write("limits.txt", "idna<4\n")
    spec = eh.load_spec(write("requirements.txt", "# head\n-r more/base.txt\n-c limits.txt\n--extra-index-url https://example.org/simple\nRequests[socks] ~= 2.31\n"))
    assert [r.split(" ")[0] for r in spec.pip] == ["idna>=3", "requests[socks]~=2.31", "six==1.16.0"]
    assert "--hash=sha256:8abb" in spec.pip[2]
    keys = spec.to_dict()
    assert keys["dependencies"]["constraints"] == ["idna<4"]
    assert keys["indexes"] == [{"name": "extra-1", "url": "https://example.org/simple"}]
    write("loop.txt", "-r loop.txt\n")
    with pytest.raises(eh.SpecError, match="circle"):
        eh.load_spec("loop.txt")


def test_pyproject_environment_yml_script_and_pylock(home):
    project = write("pyproject.toml", '[project]\nname = "Agent"\nrequires-python = ">=3.9"\ndependencies = ["six==1.16.0"]\n[tool.envharness]\nenv_vars = { A = "1" }\n')
    assert eh.load_spec(project).to_dict() == {
        "name": "agent", "python": ">=3.9", "dependencies": {"pip": ["six==1.16.0"]}, "env_vars": {"A": "1"},
    }
    conda = write("environment.yml", "name: c\nchannels: [conda-forge]\ndependencies:\n  - python=3.9\n  - pip\n  - numpy=1.24\n  - pip:\n    - six==1.16.0\nvariables: {B: 2}\nprefix: /x\n")
    assert eh.load_spec(conda).to_dict() == {
        "name": "c", "python": "3.9", "env_vars": {"B": "2"},
        "dependencies": {"pip": ["six==1.16.0"], "conda": ["numpy=1.24"], "channels": ["conda-forge"]},
    }
    text = '#!/usr/bin/env python\n# /// script\n# requires-python = ">=3.10"\n# dependencies = [\n#   "six==1.16.0",\n# ]\n# ///\nprint(1)\n'
    assert eh.load_spec(write("job.py", text)).to_dict() == {"name": "job", "python": ">=3.10", "dependencies": {"pip": ["six==1.16.0"]}}
    lock = write(
        "pylock.toml",
        'lock-version = "1.0"\ncreated-by = "x"\nrequires-python = ">=3.9"\n[[packages]]\nname = "six"\nversion = "1.16.0"\n'
        'wheels = [{ url = "https://example.org/six.whl", hashes = { sha256 = "8abb2f1d86890a2dfb989f9a77cfcfd3e47c2a354b01111771326f8aa26e0254" } }]\n',
    )
    assert eh.load_spec(lock).pip[0].startswith("six==1.16.0 --hash=sha256:8abb2f1d")


# Each: text, what the message must name.
WRONG = {
    "unknown key": ("name: a\ndependancies:\n  pip: []\n", ["w.yaml:2:1", "dependancies", "did you mean `dependencies`"]),
    "unknown nested key": ("name: a\nenvironment:\n  pyhton: '3.9'\n", ["w.yaml:3:3", "environment.pyhton", "`python`"]),
    "wrong type": ("name: a\nenv_vars: [1]\n", ["w.yaml:2", "env_vars", "a mapping", "a list"]),
    "bad version": ("name: a\ndeps:\n  - numpy==abc\n", ["w.yaml:3", "deps[0]", "numpy==abc"]),
    "conda-style pin": ("name: a\ndeps: [numpy=1.24.3]\n", ["numpy==1.24.3"]),
    "bad python": ("name: a\npython: 2.7\n", ["w.yaml:2", "2.7", "3.8"]),
    "lost zero": ("name: a\npython: 3.1\n", ["quote it"]),
    "duplicate": ("name: a\ndeps: [six==1.16.0, six == 1.16.0]\n", ["deps[1]", "stands twice"]),
    "conflict": ("name: a\ndeps:\n  - six==1.16.0\n  - six>=1.17\n", ["six==1.16.0", "six>=1.17", "collides", "w.yaml:3"]),
    "unknown backend": ("name: a\nbackend: vnev\n", ["w.yaml:2", "vnev", "did you mean `venv`"]),
    "twice": ("name: a\nname: b\n", ["w.yaml:2:1", "twice"]),
    "here and there": ("name: a\npython: '3.9'\nenvironment: {python: '3.10'}\n", ["stands as", "keep one"]),
    "bad name": ("name: 'a/b'\n", ["a/b", "63 letters"]),
    "bad memory": ("name: a\nresources: {memory: lots}\n", ["resources.memory", "8G"]),
    "bad gpu": ("name: a\nresources: {gpu: maybe}\n", ["resources.gpu", "a count"]),
    "bad date": ("name: a\nexclude-newer: tomorrow\n", ["tomorrow", "2023-09-01"]),
    "credentials": ("name: a\nindexes: ['https://me:secret@example.org/simple']\n", ["credentials", "netrc"]),
    "credentials in a requirement": ("name: a\ndeps: ['x @ https://me:secret@example.org/x.whl']\n", ["credentials"]),
    "credentials in find_links": ("name: a\nfind_links: ['https://me:secret@example.org/']\n", ["credentials"]),
    "credentials in a channel": ("name: a\nchannels: ['https://me:secret@example.org/c']\n", ["credentials"]),
    "a secret's value": ("name: a\nsecrets: {TOKEN: hunter2}\n", ["secrets.TOKEN", "no secret itself"]),
    "tab": ("name: a\nenvironment:\n\tpython: '3.9'\n", ["w.yaml:3", "tab"]),
    "no yaml": ("name: [a\n", ["not valid YAML"]),
    "a list": ("- a\n", ["a mapping", "a list"]),
    "empty": ("", ["empty"]),
    "only a comment": ("# nothing\n", ["empty"]),
    "two documents": ("name: a\n---\nname: b\n", ["second YAML document"]),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_spec_is_refused_with_place_and_remedy(case, home):
    text, words = WRONG[case]
    path = write("w.yaml", "")
    path.write_text(text)
    with pytest.raises(eh.SpecError) as caught:
        eh.load_spec(path)
    said = str(caught.value)
    assert "w.yaml" in said
    assert "secret@" not in said
    for word in words:
        assert word in said, said


def bomb() -> str:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 12)]
    return "\n".join(lines)


HOSTILE = {
    "alias bomb": ("h.yaml", bomb()),
    "deep flow": ("h.yaml", "[" * 5_000_000 + "]" * 5_000_000),
    "deep block": ("h.yaml", "".join(" " * i + "a:\n" for i in range(3000))),
    "deep json": ("h.json", "[" * 5_000_000),
    "deep toml": ("h.toml", "a = " + "[" * 1_000_000),
    "wide": ("h.yaml", "name: a\ndeps:\n" + "  - six==1.16.0\n" * 400_000),
    "many keys": ("h.yaml", "".join(f"k{i}: 1\n" for i in range(200_000))),
    "one long line": ("h.json", '{"name": "' + "a" * 10_000_000 + '"}'),
    "binary": ("h.yaml", "\x00\x01\x02"),
    "many requirements": ("requirements.txt", "".join(f"p{i}\n" for i in range(300_000))),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_a_hostile_spec_neither_crashes_nor_hangs(case, home):
    name, text = HOSTILE[case]
    write(name, "").write_text(text)
    code = f"import envharness as eh\ntry:\n    eh.load_spec({name!r})\nexcept eh.SpecError as e:\n    print('refused', str(e)[:300])\n"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr[-500:]
    assert done.stdout.startswith("refused")


def test_bom_and_crlf_are_read_and_other_encodings_named(home):
    path = write("b.yaml", "")
    path.write_bytes(b"\xef\xbb\xbfname: a\r\ndeps:\r\n  - six==1.16.0\r\n")
    assert eh.load_spec(path).pip == ["six==1.16.0"]
    path.write_bytes("name: a\n".encode("utf-16"))
    with pytest.raises(eh.SpecError, match="UTF-16"):
        eh.load_spec(path)
    path.write_bytes(b"name: \xff\xfe\xfd\n")
    with pytest.raises(eh.SpecError, match="UTF-8"):
        eh.load_spec(path)


def test_a_missing_file_names_the_nearest_and_odd_values_are_refused(home):
    write("task_spec.yaml", "name: a\n")
    with pytest.raises(eh.SpecError, match=r"did you mean `task_spec.yaml`"):
        eh.load_spec("task_spek.yaml")
    for odd in (3, None, {"name": object()}, {"name": "a", "deps": [1]}, {1: 2}, {"name": float("nan")}):
        with pytest.raises(eh.SpecError):
            eh.create_context(odd)


def test_the_published_schema_takes_what_is_taken_and_refuses_what_is_not(home):
    schema = eh.spec_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(schema)
    good = [
        {"name": "a", "environment": {"backend": "venv", "dependencies": {"pip": ["x"]}}, "resources": {"gpu": False}},
        {"name": "a", "deps": ["x"]},
        {"name": "a", "python": "3.9", "env_vars": {"A": 1}, "resources": {"gpu": 1, "memory": "8G"}, "exclude-newer": "2023-01-01"},
    ]
    for mapping in good:
        validator.validate(mapping)
        eh.create_spec(**mapping)
    for mapping in ({"dependancies": {}}, {"backend": "vnev"}, {"env_vars": [1]}, {"resources": {"gpu": "maybe"}}):
        assert not validator.is_valid(mapping)
        with pytest.raises(eh.SpecError):
            eh.create_spec("a", **mapping)
    validator.validate(eh.load_spec(EXAMPLES / "task_spec.yaml").to_dict())


def test_what_pyproject_says_in_another_tools_words_is_not_lost_silently(home):
    project = '[project]\nname = "a"\ndependencies = ["six"]\n'
    with pytest.raises(eh.SpecError, match=r"tool\.uv\.sources\.six"):
        eh.load_spec(write("pyproject.toml", project + '[tool.uv.sources]\nsix = { path = "../six" }\n'))
    with pytest.raises(eh.SpecError, match="dynamic"):
        eh.load_spec(write("pyproject.toml", '[project]\nname = "a"\ndynamic = ["version", "dependencies"]\n'))
    assert eh.create_spec("a", python=3.11).python == "3.11"
    with pytest.raises(eh.SpecError):
        eh.load_spec_from_config(None)


def test_ten_specs_that_differ_in_name_only_differ_in_digest(home):
    digests = {eh.create_spec(f"n{i}", ["six==1.16.0"]).digest for i in range(10)}
    assert len(digests) == 10


NAMES = ["six", "Foo.Bar_baz", "a", "A-b", "x" * 30, "-x", "x-", "\u00e9", "a b", "a.b.", "0"]
EXTRAS = ["", "[x]", "[X_y,z]", "[ a , b ]", "[]", "[a,]", "[a"]
VERSIONS = [
    "", "==1.0", ">=1,<2", "~=1.4.2", "~=1", "!=1.5.*", "==1.*", "===1.0", "==1.0+local", ">=1.0+local", "<1!2", "== 2024.1 , != 2024.2", "(>=1)", "(>=1",
    "=1", "=>1", ">= 1.0.dev1", ">1.*", ">=1.0a1.post2", "==v1.0", "==1.0-1", "==1.0RC1", ">=1 <2", " >=1",
]  # fmt: skip
MARKERS = [
    "", " ; python_version < '3.9'", "; python_version<'3.10' and sys_platform == 'linux'", "; extra == 'x'", "; python_version",
    " ; os_name=='posix' or (python_version >= '3.8' and platform_machine != 'arm64')", "; nonsense == '1'", " ; 'linux' in sys_platform",
    "; python_full_version >= '3.8.1'", " ; python_version not in '2.6, 2.7'",
]  # fmt: skip


def by_packaging(text: str) -> tuple | None:
    """A requirement's meaning (PEP 508, PEP 440) to the reference implementation; None when it is refused."""
    try:
        one = Requirement(text)
    except InvalidRequirement:
        return None
    extras = sorted(canonicalize_name(extra) for extra in one.extras)
    environments = [{"python_version": "3.8", "python_full_version": "3.8.0"}, {"python_version": "3.11", "os_name": "nt"}, {"extra": "x", "sys_platform": "linux"}]
    holds = [one.marker.evaluate({"extra": "", **environment}) for environment in environments] if one.marker else [True] * 3
    versions = ["0.9", "1.0.dev1", "1.0a1.post2", "1.0rc1", "1.0", "1.0+local", "1.0.post1", "1.4.2", "1.4.9", "1.5", "1.5.3", "2", "2024.1", "2024.2", "1!1", "1!2"]
    return canonicalize_name(one.name), extras, [one.specifier.contains(version, prereleases=True) for version in versions], holds


@pytest.mark.parametrize("name", NAMES)
def test_a_requirement_means_what_it_means_to_packaging(name):
    for parts in itertools.product(EXTRAS, VERSIONS, MARKERS):
        text = name + "".join(parts)
        try:
            (ours,) = eh.create_spec("s", [text]).pip
        except eh.SpecError:
            ours = None
        wanted = by_packaging(text)
        assert (by_packaging(ours) if ours else None) == wanted, (text, ours)
