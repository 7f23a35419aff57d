"""Repositories of a Gitea server, cloned into a workspace and put back to a commit between episodes."""

import atexit
import base64
import json
import os
import shlex
import shutil
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, urlparse

from ... import _missing


@dataclass
class RepoInfo:
    """One repository."""

    name: str
    url: str
    commit: str
    clone_url: str


class GitServerClient:
    """One user's repositories on one server."""

    def __init__(self, gitea_url, username, password, workspace_dir="/workspace"):
        """Makes the workspace, and git settings that only this client's commands see."""
        self.gitea_url = gitea_url.rstrip("/")
        self.username = username
        self.password = password
        self.workspace_dir = Path(workspace_dir)
        self.is_ready = False
        parsed = urlparse(self.gitea_url)
        self.domain = parsed.hostname or "localhost"
        self.port = parsed.port or 3000
        self.workspace_dir.mkdir(parents=True, exist_ok=True)
        self._git_env = self._settings()

    def _settings(self):
        folder = Path(tempfile.mkdtemp(prefix="openenv-git-"))
        atexit.register(shutil.rmtree, str(folder), ignore_errors=True)
        credentials = folder / "git-credentials"
        credentials.touch(mode=0o600)
        user, password = quote(self.username, safe=""), quote(self.password, safe="")
        credentials.write_text("http://%s:%s@%s:%s\n" % (user, password, self.domain, self.port))
        settings = folder / "gitconfig"
        settings.write_text(
            "[user]\n\tname = %s\n\temail = %s@local.env\n[init]\n\tdefaultBranch = main\n"
            "[credential]\n\thelper = store --file %s\n" % (self.username, self.username, shlex.quote(str(credentials)))
        )
        return dict(os.environ, GIT_CONFIG_GLOBAL=str(settings))

    def _git(self, folder, *args):
        command = ("git",) + args
        return subprocess.run(command, cwd=str(folder), env=self._git_env, capture_output=True, text=True, check=False)

    def _need_ready(self):
        if not self.is_ready:
            raise RuntimeError("Gitea server is not ready")

    def wait_for_ready(self, timeout=30):
        """Whether the server answers within ``timeout`` seconds."""
        deadline = time.monotonic() + timeout
        while True:
            try:
                with urllib.request.urlopen(self.gitea_url + "/", timeout=5):
                    self.is_ready = True
                    return True
            except (OSError, ValueError):
                if time.monotonic() + 1 > deadline:
                    return False
            time.sleep(1)

    def list_repositories(self):
        """Name, full name, clone URL and description of each; an empty list where the server gives none."""
        self._need_ready()
        token = base64.b64encode(("%s:%s" % (self.username, self.password)).encode("utf-8")).decode("ascii")
        request = urllib.request.Request(self.gitea_url + "/api/v1/user/repos", headers={"Authorization": "Basic " + token})
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                repositories = json.load(answer)
            return [
                {
                    "name": one["name"],
                    "full_name": one["full_name"],
                    "clone_url": one["clone_url"],
                    "description": one.get("description", ""),
                }
                for one in repositories
            ]
        except (OSError, ValueError, KeyError, TypeError):
            return []

    def clone_to_workspace(self, repo_name, target_dir=None, commit="main"):
        """Clones afresh, checks a commit out, and gives the path."""
        self._need_ready()
        target = self.workspace_dir / (target_dir or repo_name)
        if target.exists():
            shutil.rmtree(str(target))
        url = "%s/%s/%s.git" % (self.gitea_url, self.username, repo_name)
        done = self._git(self.workspace_dir, "clone", url, str(target))
        if done.returncode != 0:
            raise RuntimeError("Clone failed: %s" % done.stderr)
        if commit != "main":
            self._checkout(target, commit)
        return str(target)

    def _checkout(self, folder, commit):
        done = self._git(folder, "checkout", commit)
        if done.returncode != 0:
            raise RuntimeError("Checkout failed: %s" % done.stderr)

    def reset_workspace(self, repo_name, commit="main"):
        """Puts a clone back to a commit, and removes what is not tracked."""
        folder = self.workspace_dir / repo_name
        if not folder.exists():
            raise RuntimeError("Repository not found in workspace: %s" % repo_name)
        # The commit may be younger than the clone.
        self._git(folder, "fetch", "--all")
        self._checkout(folder, commit)
        # A branch is put to where the server has it; a commit has no such name.
        names = [commit] if commit == "main" else ["origin/%s" % commit, commit]
        for name in names:
            done = self._git(folder, "reset", "--hard", name)
            if done.returncode == 0:
                break
        else:
            raise RuntimeError("Reset failed: %s" % done.stderr)
        self._git(folder, "clean", "-fdx")
        return True

    def execute_git_command(self, command, working_dir=""):
        """Runs ``git COMMAND`` in the workspace; gives exit code, output and errors."""
        folder = self.workspace_dir / working_dir if working_dir else self.workspace_dir
        if not folder.exists():
            return 1, "", "Working directory does not exist: %s" % folder
        done = self._git(folder, *shlex.split(command))
        return done.returncode, done.stdout, done.stderr

    def get_current_commit(self, repo_name):
        """Hash of a clone's commit."""
        folder = self.workspace_dir / repo_name
        if not folder.exists():
            raise RuntimeError("Repository not found: %s" % repo_name)
        done = self._git(folder, "rev-parse", "HEAD")
        if done.returncode != 0:
            raise RuntimeError("Failed to get commit: %s" % done.stderr)
        return done.stdout.strip()

    def workspace_exists(self, repo_name):
        """Whether there is a clone."""
        return (self.workspace_dir / repo_name).exists()


def __getattr__(name):
    raise _missing.name(__name__, name)
