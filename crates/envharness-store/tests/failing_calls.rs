//! Every file operation of a publication fails once: an error with its path, nothing half made, and the next try works.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use envharness_store::{Acquired, Fs, Home, NewContext, Origin, OsFs, PrefixMeta, State, StoreError, remove_tree};

/// Fails the call of that number, counted from 1.
struct Failing {
    calls: AtomicUsize,
    at: AtomicUsize,
}

impl Failing {
    fn step<T>(&self, work: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        let number = self.calls.fetch_add(1, Ordering::SeqCst) + 1;
        if number == self.at.load(Ordering::SeqCst) { Err(io::Error::from_raw_os_error(28)) } else { work() }
    }
}

impl Fs for Failing {
    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        self.step(|| OsFs.create_dir_all(path))
    }
    fn write(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        self.step(|| OsFs.write(path, bytes))
    }
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.step(|| OsFs.rename(from, to))
    }
    fn sync_fs(&self, path: &Path) -> io::Result<()> {
        self.step(|| OsFs.sync_fs(path))
    }
    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.step(|| OsFs.sync_dir(path))
    }
    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.step(|| OsFs.remove_file(path))
    }
    fn remove_tree(&self, path: &Path) -> io::Result<()> {
        self.step(|| OsFs.remove_tree(path))
    }
}

fn scratch(name: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("envharness-store-{name}-{}", std::process::id()));
    remove_tree(&path).unwrap();
    path
}

fn publish(home: &Home, key: &str) -> Result<(), StoreError> {
    let guard = home.build_lock(key, true, |_| Ok::<(), StoreError>(()))?;
    let temporary = home.temporary("build")?;
    let staged = temporary.path().join("prefix");
    std::fs::create_dir_all(staged.join("lib/pkg")).unwrap();
    std::fs::write(staged.join("lib/pkg/a.py"), "x = 1\n").unwrap();
    std::os::unix::fs::symlink("lib", staged.join("link")).unwrap();
    let meta = PrefixMeta {
        key: key.into(),
        backend: "venv".into(),
        python: "3.11.7".into(),
        interpreter: "/usr/bin/python3".into(),
        lock_digest: "sha256:x".into(),
        packages: 1,
    };
    home.publish(&staged, &meta)?;
    drop(guard);
    Ok(())
}

#[test]
fn a_publication_is_whole_or_absent_whatever_call_fails() {
    let root = scratch("publish");
    let failing = Arc::new(Failing { calls: AtomicUsize::new(0), at: AtomicUsize::new(usize::MAX) });
    let home = Home::with_fs(&root.join("home"), &root.join("cache"), failing.clone()).unwrap();
    publish(&home, "whole").unwrap();
    let calls = failing.calls.load(Ordering::SeqCst);
    assert!(calls >= 6, "{calls}");
    for at in 1..=calls {
        let key = format!("key{at}");
        failing.calls.store(0, Ordering::SeqCst);
        failing.at.store(at, Ordering::SeqCst);
        let first = publish(&home, &key);
        failing.at.store(usize::MAX, Ordering::SeqCst);
        match home.acquire_prefix(&key).unwrap() {
            Acquired::Ready(_) => {}
            Acquired::Absent => {
                let error = first.unwrap_err();
                assert!(error.hint().unwrap().contains("disk is full"), "{error}");
                publish(&home, &key).unwrap();
            }
            Acquired::Quarantined(faults) => panic!("call {at} left a broken prefix: {faults:?}"),
        }
        assert!(home.verify_prefix(&key, true).unwrap().faults.is_empty());
    }
    home.sweep_temporaries(100, None).unwrap();
    assert_eq!(std::fs::read_dir(home.tmp()).unwrap().count(), 0);
    remove_tree(&root).unwrap();
}

#[test]
fn a_context_that_cannot_be_made_leaves_nothing() {
    let root = scratch("context");
    let failing = Arc::new(Failing { calls: AtomicUsize::new(0), at: AtomicUsize::new(1) });
    let home = Home::with_fs(&root.join("home"), &root.join("cache"), failing).unwrap();
    let new = NewContext {
        name: "n".into(),
        backend: "venv".into(),
        origin: Origin::Create,
        state: State::Running,
        spec_digest: "s".into(),
        lock_digest: "l".into(),
        prefix: String::new(),
        idle: None,
        payload: "{}".into(),
    };
    assert!(matches!(home.create_context(&new), Err(StoreError::Io { .. })));
    assert!(home.contexts().unwrap().is_empty());
    assert_eq!(std::fs::read_dir(root.join("home/contexts")).unwrap().count(), 0);
    let lease = home.create_context(&new).unwrap();
    assert!(home.is_held(&lease.id));
    home.remove_context(lease).unwrap();
    remove_tree(&root).unwrap();
}

#[test]
fn an_addition_that_was_cut_short_is_no_fault() {
    let root = scratch("amend");
    let home = Home::open(&root.join("home"), &root.join("cache")).unwrap();
    publish(&home, "key").unwrap();
    let source = root.join("a.pyc");
    std::fs::write(&source, "code").unwrap();
    let addition = [("lib/pkg/__pycache__/a.pyc".to_owned(), source.clone())];
    assert_eq!(home.amend_prefix("key", &addition).unwrap(), 1);
    // As a kill between the links and the new list leaves it: the plan, the old list, and the file.
    let list = home.record("key", "files");
    let whole = std::fs::read_to_string(&list).unwrap();
    let before: String = whole.lines().filter(|line| !line.contains("__pycache__")).map(|line| format!("{line}\n")).collect();
    std::fs::write(home.record("key", "next"), &whole).unwrap();
    std::fs::write(&list, before).unwrap();
    assert!(home.verify_prefix("key", true).unwrap().faults.is_empty());
    assert!(matches!(home.acquire_prefix("key").unwrap(), Acquired::Ready(_)));
    assert_eq!(std::fs::read_to_string(&list).unwrap(), whole);
    remove_tree(&root).unwrap();
}
