//! The state database: opening, migrating, and staying usable over `fork`.
//!
//! One connection per process and store sits behind one mutex. A fork takes the mutex first (the Python package
//! registers the hooks) and closes the connections: SQLite keeps locks per process, and a child that inherited its
//! tables would believe in locks that it does not hold. Both sides open anew when they need to.

use std::cell::RefCell;
use std::collections::HashMap;
use std::os::fd::RawFd;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rusqlite::Connection;
use rusqlite::config::DbConfig;

use crate::error::StoreError;
use crate::home::Home;

/// Forward migrations, one per format; the length is the newest format.
const MIGRATIONS: [&str; 1] = ["
    CREATE TABLE prefixes (
        key TEXT PRIMARY KEY, backend TEXT NOT NULL, python TEXT NOT NULL, interpreter TEXT NOT NULL,
        lock_digest TEXT NOT NULL, packages INTEGER NOT NULL, files INTEGER NOT NULL, bytes INTEGER NOT NULL,
        created REAL NOT NULL, used REAL NOT NULL, boot_id TEXT NOT NULL, durable INTEGER NOT NULL
    ) WITHOUT ROWID;
    CREATE TABLE contexts (
        id TEXT PRIMARY KEY, name TEXT NOT NULL, backend TEXT NOT NULL, state TEXT NOT NULL, origin TEXT NOT NULL,
        spec_digest TEXT NOT NULL, lock_digest TEXT NOT NULL, prefix TEXT NOT NULL, pid INTEGER NOT NULL,
        created REAL NOT NULL, used REAL NOT NULL, expires REAL, payload TEXT NOT NULL, error TEXT
    ) WITHOUT ROWID;
    CREATE INDEX contexts_reuse ON contexts (spec_digest, lock_digest, state, origin);
    CREATE INDEX contexts_state ON contexts (state, expires);
    CREATE INDEX contexts_created ON contexts (state, created);
    CREATE INDEX contexts_prefix ON contexts (prefix);
    CREATE TABLE interpreters (path TEXT PRIMARY KEY, stamp TEXT NOT NULL, info TEXT NOT NULL) WITHOUT ROWID;
"];

struct Open {
    file: Option<(u64, u64)>,
    connection: Connection,
}

static OPEN: Mutex<Option<HashMap<PathBuf, Open>>> = Mutex::new(None);

fn all() -> MutexGuard<'static, Option<HashMap<PathBuf, Open>>> {
    OPEN.lock().unwrap_or_else(PoisonError::into_inner)
}

type Held = (MutexGuard<'static, Option<HashMap<PathBuf, Open>>>, MutexGuard<'static, Vec<RawFd>>);

thread_local! {
    static HELD: RefCell<Option<Held>> = const { RefCell::new(None) };
}

/// Waits until no call is under way, closes the connections, and keeps others out until the fork is done.
pub fn before_fork() {
    HELD.with_borrow_mut(|held| {
        let mut connections = all();
        *connections = None;
        *held = Some((connections, crate::flock::held()));
    });
}

/// Lets calls go on.
pub fn after_fork_in_parent() {
    HELD.with_borrow_mut(|held| *held = None);
}

/// Closes copies of the parent's locks, and lets calls go on.
pub fn after_fork_in_child() {
    HELD.with_borrow_mut(|held| {
        if let Some((_, locks)) = held.as_mut() {
            for fd in locks.drain(..) {
                // The child's copy of a descriptor that a `FileLock` of the parent owns: closed here once, since a
                // `FileLock` from another process never closes its own.
                close_copy(fd);
            }
        }
        *held = None;
    });
}

fn close_copy(fd: RawFd) {
    // Reopening through /proc would not close it; rustix's `close` takes any descriptor by number.
    #[expect(unsafe_code, reason = "a raw descriptor is closed exactly once, in a forked child")]
    // SAFETY: the descriptor was open at the fork and nothing in the child uses it.
    unsafe {
        rustix::io::close(fd);
    }
}

impl Home {
    /// Runs `work` with the connection.
    pub(crate) fn database_call<T>(&self, work: impl FnOnce(&mut Connection) -> rusqlite::Result<T>) -> Result<T, StoreError> {
        let path = self.database();
        let mut guard = all();
        let map = guard.get_or_insert_with(HashMap::new);
        let file = identity(&path);
        // The store may have been removed and made anew under us.
        if map.get(&path).is_some_and(|open| open.file != file) {
            map.remove(&path);
        }
        let open = match map.entry(path.clone()) {
            std::collections::hash_map::Entry::Occupied(entry) => entry.into_mut(),
            std::collections::hash_map::Entry::Vacant(entry) => {
                let connection = open(&path)?;
                entry.insert(Open { file: identity(&path), connection })
            }
        };
        work(&mut open.connection).map_err(|source| StoreError::Database { path, source })
    }

    /// Checks the database's own structure; lines of trouble, none when it is sound.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub fn check_database(&self) -> Result<Vec<String>, StoreError> {
        self.database_call(|db| {
            let mut statement = db.prepare("PRAGMA integrity_check")?;
            let lines = statement.query_map([], |row| row.get::<_, String>(0))?.collect::<Result<Vec<_>, _>>()?;
            Ok(lines.into_iter().filter(|line| line != "ok").collect())
        })
    }
}

fn identity(path: &Path) -> Option<(u64, u64)> {
    use std::os::unix::fs::MetadataExt as _;
    std::fs::metadata(path).ok().map(|m| (m.dev(), m.ino()))
}

fn open(path: &Path) -> Result<Connection, StoreError> {
    let failed = |source| StoreError::Database { path: path.to_owned(), source };
    let mut connection = Connection::open(path).map_err(failed)?;
    connection.busy_timeout(Duration::from_secs(30)).map_err(failed)?;
    let journal = if on_network(path) { "DELETE" } else { "WAL" };
    // Many short-lived processes share the database: the last one to close must not pay for a checkpoint.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true).map_err(failed)?;
    let mode: String = connection.query_row("PRAGMA journal_mode", [], |row| row.get(0)).map_err(failed)?;
    if !mode.eq_ignore_ascii_case(journal) {
        // Switching needs the file for itself for a moment, and fails at once when two processes try together.
        let mut tries = 0;
        while let Err(error) = connection.query_row(&format!("PRAGMA journal_mode = {journal}"), [], |_| Ok(())) {
            tries += 1;
            if tries > 600 {
                return Err(failed(error));
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }
    connection.execute_batch("PRAGMA synchronous = NORMAL; PRAGMA wal_autocheckpoint = 400;").map_err(failed)?;
    migrate(&mut connection, path)?;
    Ok(connection)
}

fn migrate(connection: &mut Connection, path: &Path) -> Result<(), StoreError> {
    let failed = |source| StoreError::Database { path: path.to_owned(), source };
    let known = i64::try_from(MIGRATIONS.len()).unwrap_or(i64::MAX);
    let version = |db: &Connection| db.query_row("PRAGMA user_version", [], |row| row.get::<_, i64>(0));
    let found = version(connection).map_err(failed)?;
    if found > known {
        return Err(StoreError::Newer { path: path.to_owned(), found, known });
    }
    if found == known {
        return Ok(());
    }
    let transaction = connection.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate).map_err(failed)?;
    // Another process may have migrated while this one waited.
    let found = version(&transaction).map_err(failed)?;
    for migration in &MIGRATIONS[usize::try_from(found).unwrap_or(0)..] {
        transaction.execute_batch(migration).map_err(failed)?;
    }
    transaction.pragma_update(None, "user_version", known).map_err(failed)?;
    transaction.commit().map_err(failed)
}

/// WAL needs shared memory, which network file systems do not give.
fn on_network(path: &Path) -> bool {
    const NETWORK: [i64; 6] = [0x6969, 0xff53_4d42, 0xfe53_4d42, 0x0bd0_0bd0, 0x00c3_6400, 0x0102_1997];
    path.parent().and_then(|p| rustix::fs::statfs(p).ok()).is_some_and(|s| NETWORK.contains(&{ s.f_type }))
}

/// Identifies this boot of the machine.
pub(crate) fn boot_id() -> String {
    std::fs::read_to_string("/proc/sys/kernel/random/boot_id").map_or_else(|_| "unknown".into(), |id| id.trim().to_owned())
}

impl Home {
    /// What an interpreter said of itself, if the file has not changed since.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub fn known_interpreter(&self, path: &Path, stamp: &str) -> Result<Option<String>, StoreError> {
        use rusqlite::OptionalExtension as _;
        let path = path.to_string_lossy();
        self.database_call(|db| {
            let mut statement = db.prepare_cached("SELECT info FROM interpreters WHERE path = ?1 AND stamp = ?2")?;
            statement.query_row([path.as_ref(), stamp], |row| row.get(0)).optional()
        })
    }

    /// Keeps what an interpreter said of itself.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub fn remember_interpreter(&self, path: &Path, stamp: &str, info: &str) -> Result<(), StoreError> {
        let path = path.to_string_lossy();
        self.database_call(|db| db.execute("INSERT OR REPLACE INTO interpreters VALUES (?1, ?2, ?3)", [path.as_ref(), stamp, info]))
            .map(drop)
    }
}
