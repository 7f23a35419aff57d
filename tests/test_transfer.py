"""Files in and out: no link is followed out of a context, nothing of the host is covered."""

import os
from pathlib import Path

import envharness as eh
import pytest
from conftest import SMALL, write


@pytest.fixture
def ctx(home):
    with eh.create_context(SMALL) as context:
        yield context


def test_relative_absolute_and_tmp_paths_are_where_processes_see_them(ctx):
    write("local_config.yaml", "a: 1\n")
    ctx.upload_file("./local_config.yaml", "/tmp/config.yaml")
    assert ctx.execute(["cat", "/tmp/config.yaml"]).logs == "a: 1\n"
    ctx.run("echo log > /tmp/training_log.txt", stream=False)
    ctx.download_file("/tmp/training_log.txt", "./output/log.txt")
    assert Path("output/log.txt").read_text() == "log\n"
    ctx.upload_file("local_config.yaml", "sub/c.yaml")
    assert (ctx.workdir / "sub/c.yaml").read_text() == "a: 1\n"
    ctx.upload_file("local_config.yaml", "sub/")
    ctx.upload_file("local_config.yaml", "/agent/deep/er/c.yaml")
    ctx.upload_file("local_config.yaml", "/opt/envharness-test/c.yaml")
    assert ctx.execute(["cat", "/agent/deep/er/c.yaml", "/opt/envharness-test/c.yaml"]).logs == "a: 1\na: 1\n"
    assert ctx.execute(["ls", "/usr", "/etc/passwd"]).ok
    assert not Path("/agent").exists() and not Path("/opt/envharness-test").exists()
    ctx.download_file("sub", "back")
    assert sorted(p.name for p in Path("back").iterdir()) == ["c.yaml", "local_config.yaml"]
    with eh.create_context(SMALL) as other:
        assert other.execute(["ls", "/agent"]).exit_code != 0


def test_the_hosts_folders_are_neither_covered_nor_written(ctx):
    write("x", "x")
    for target in ("/etc/envharness-test", "/usr/lib/envharness-test", "/envharness-test"):
        with pytest.raises(eh.TransferError, match="relative path"):
            ctx.upload_file("x", target)
        assert not Path(target).exists()
    for target in ("../x", "a/../../x", "/agent/../../etc/x"):
        with pytest.raises(eh.TransferError, match=r"\.\."):
            ctx.upload_file("x", target)


def test_no_link_is_followed_out(ctx, tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("secret")
    outside = tmp_path / "outside"
    outside.mkdir()
    write("x", "new")
    os.symlink(outside, ctx.workdir / "folder")
    os.symlink(secret, ctx.workdir / "file")
    with pytest.raises(eh.TransferError, match="symlink"):
        ctx.upload_file("x", "folder/x")
    assert list(outside.iterdir()) == []
    ctx.upload_file("x", "file")
    assert secret.read_text() == "secret" and (ctx.workdir / "file").read_text() == "new"
    os.symlink(secret, ctx.workdir / "again")
    with pytest.raises(eh.TransferError):
        ctx.download_file("again", "got")
    os.symlink(tmp_path, ctx.workdir / "up")
    with pytest.raises(eh.TransferError, match="symlink"):
        ctx.download_file("up/secret", "got")
    assert not Path("got").exists()
    os.mkfifo(ctx.workdir / "pipe")
    with pytest.raises(eh.TransferError, match="neither"):
        ctx.download_file("pipe", "got")


def test_modes_are_kept_files_replaced_whole_and_failures_leave_the_old(ctx):
    path = write("run.sh", "#!/bin/sh\necho ran\n")
    path.chmod(0o750)
    ctx.upload_file("run.sh", "run.sh")
    assert (ctx.workdir / "run.sh").stat().st_mode & 0o777 == 0o750
    assert ctx.execute([ctx.workdir / "run.sh"]).logs == "ran\n"
    inode = (ctx.workdir / "run.sh").stat().st_ino
    ctx.upload_file("run.sh", "run.sh")
    assert (ctx.workdir / "run.sh").stat().st_ino != inode
    with pytest.raises(eh.TransferError, match="check the path"):
        ctx.upload_file("missing", "run.sh")
    with pytest.raises(eh.TransferError):
        ctx.download_file("missing", "run.sh")
    assert path.read_text().startswith("#!/bin/sh")
    assert not [p for p in ctx.workdir.iterdir() if p.name.startswith(".envharness-")]


def test_trees_keep_links_as_links_and_progress_is_told(ctx):
    write("tree/a.txt", "a" * 1000)
    write("tree/sub/b.txt", "b" * 1000)
    (Path("tree") / "empty").mkdir()
    os.symlink("a.txt", "tree/link")
    told = []
    ctx.upload_file("tree", "tree", progress=told.append)
    assert told[-1] == 2000
    assert os.readlink(ctx.workdir / "tree/link") == "a.txt" and (ctx.workdir / "tree/empty").is_dir()
    ctx.download_file("tree", "copy")
    assert os.readlink("copy/link") == "a.txt" and Path("copy/sub/b.txt").read_text() == "b" * 1000

    def stop(_):
        raise RuntimeError("stop")

    with pytest.raises(RuntimeError, match="stop"):
        ctx.upload_file("tree/a.txt", "again.txt", progress=stop)


def test_an_activated_process_is_warned_that_it_does_not_see_an_upload(script, home):
    code = f"""
    import warnings
    import envharness as eh
    open("x", "w").write("x")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with eh.get_context({SMALL!r}) as ctx:
            ctx.upload_file("x", "/agent/x")
            ctx.upload_file("x", "x")
    assert len(caught) == 1 and "does not" in str(caught[0].message), caught
    print("ok")
    """
    assert script(code).ok().out == "ok\n"
