//! Contexts: rows, folders and leases.

use std::path::PathBuf;
use std::time::Duration;

use rusqlite::{OptionalExtension as _, Row, params};

use crate::error::{IoContext as _, StoreError};
use crate::flock::FileLock;
use crate::home::Home;

/// The life of a context.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// Its prefix is being built.
    Creating,
    /// Somebody holds it.
    Running,
    /// Nobody holds it; `get_context` may take it again.
    Idle,
    /// Kept without a holder; never reused by `get_context`.
    Suspended,
    /// Something went wrong with it.
    Error,
}

impl State {
    /// The word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Creating => "creating",
            Self::Running => "running",
            Self::Idle => "idle",
            Self::Suspended => "suspended",
            Self::Error => "error",
        }
    }

    fn parse(word: &str) -> Self {
        match word {
            "creating" => Self::Creating,
            "running" => Self::Running,
            "idle" => Self::Idle,
            "suspended" => Self::Suspended,
            _ => Self::Error,
        }
    }

    /// Whether a live holder is what keeps it.
    pub fn needs_holder(self) -> bool {
        matches!(self, Self::Creating | Self::Running)
    }
}

/// Who made a context, and so whose it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// `get_context`: found again or swept.
    Get,
    /// `create_context`: ends with its holder.
    Create,
    /// `create_env`, `envharness create`, or kept: belongs to its maker until it is destroyed.
    Kept,
}

impl Origin {
    /// The word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::Create => "create",
            Self::Kept => "kept",
        }
    }

    fn parse(word: &str) -> Self {
        match word {
            "get" => Self::Get,
            "create" => Self::Create,
            _ => Self::Kept,
        }
    }
}

/// A context's row.
#[derive(Debug, Clone)]
pub struct ContextRow {
    /// The id.
    pub id: String,
    /// The spec's name.
    pub name: String,
    /// The backend.
    pub backend: String,
    /// The state as the row has it.
    pub state: State,
    /// Whose it is.
    pub origin: Origin,
    /// The digest of its spec.
    pub spec_digest: String,
    /// The digest of its lock.
    pub lock_digest: String,
    /// The key of its prefix; empty for an adopted environment.
    pub prefix: String,
    /// The last holder's process.
    pub pid: u32,
    /// Seconds since 1970.
    pub created: f64,
    /// Seconds since 1970.
    pub used: f64,
    /// When `gc` may take it, in seconds since 1970; `None` for never.
    pub expires: Option<f64>,
    /// What the rig keeps with it, as JSON.
    pub payload: String,
    /// What went wrong.
    pub error: Option<String>,
}

impl ContextRow {
    /// Whether a free lease means that its holder died: always while it is being created, and while it runs unless it
    /// belongs to its maker.
    pub fn lost_its_holder(&self) -> bool {
        self.state == State::Creating || (self.state == State::Running && self.origin != Origin::Kept)
    }
}

/// What a new context is made of.
#[derive(Debug, Clone)]
pub struct NewContext {
    /// The spec's name.
    pub name: String,
    /// The backend's word for the id.
    pub backend: String,
    /// Whose it is.
    pub origin: Origin,
    /// Its first state.
    pub state: State,
    /// The digest of its spec.
    pub spec_digest: String,
    /// The digest of its lock.
    pub lock_digest: String,
    /// The key of its prefix.
    pub prefix: String,
    /// How long it may lie unused.
    pub idle: Option<Duration>,
    /// What the rig keeps with it, as JSON.
    pub payload: String,
}

/// A context held by this process.
#[derive(Debug)]
pub struct Lease {
    /// The id.
    pub id: String,
    lock: FileLock,
}

const COLUMNS: &str = "id, name, backend, state, origin, spec_digest, lock_digest, prefix, pid, created, used, expires, payload, error";

fn from_row(row: &Row<'_>) -> rusqlite::Result<ContextRow> {
    Ok(ContextRow {
        id: row.get(0)?,
        name: row.get(1)?,
        backend: row.get(2)?,
        state: State::parse(&row.get::<_, String>(3)?),
        origin: Origin::parse(&row.get::<_, String>(4)?),
        spec_digest: row.get(5)?,
        lock_digest: row.get(6)?,
        prefix: row.get(7)?,
        pid: row.get(8)?,
        created: row.get(9)?,
        used: row.get(10)?,
        expires: row.get(11)?,
        payload: row.get(12)?,
        error: row.get(13)?,
    })
}

fn random_fraction() -> f64 {
    let bytes = crate::random_suffix(4);
    bytes.bytes().fold(0.0, |sum, b| sum / 128.0 + f64::from(b) / 128.0) / 1.01
}

impl Home {
    fn lease_path(&self, id: &str) -> PathBuf {
        self.lock(&format!("{id}.lease"))
    }

    /// Makes a context. The row comes last: an id is absent or complete.
    ///
    /// # Errors
    /// [`StoreError`]; nothing is left then.
    pub fn create_context(&self, new: &NewContext) -> Result<Lease, StoreError> {
        let (id, lock) = loop {
            let id = format!("{}-env-{}-{}", new.backend, new.name, crate::random_suffix(5));
            let Some(lock) = FileLock::try_acquire(&self.lease_path(&id), true)? else { continue };
            if !self.context(&id).exists() {
                break (id, lock);
            }
        };
        let lease = Lease { id, lock };
        let folder = self.context(&lease.id);
        let work = folder.join("work");
        let made = self.fs.create_dir_all(&work).on("create", &work).and_then(|()| self.insert_context(&lease.id, new));
        if let Err(error) = made {
            let _ = self.fs.remove_tree(&folder);
            lease.lock.remove();
            return Err(error);
        }
        Ok(lease)
    }

    fn insert_context(&self, id: &str, new: &NewContext) -> Result<(), StoreError> {
        let now = crate::now();
        let expires = new.idle.map(|idle| now + idle.as_secs_f64());
        self.database_call(|db| {
            db.prepare_cached("INSERT INTO contexts VALUES (?1,?2,?3,?4,?5,?6,?7,?8,?9,?10,?10,?11,?12,NULL)")?.execute(params![
                id,
                new.name,
                new.backend,
                new.state.as_str(),
                new.origin.as_str(),
                new.spec_digest,
                new.lock_digest,
                new.prefix,
                std::process::id(),
                now,
                expires,
                new.payload
            ])
        })
        .map(drop)
    }

    /// Takes an idle context that `get_context` made for the same spec and lock.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn take_idle(&self, spec_digest: &str, lock_digest: &str) -> Result<Option<(Lease, ContextRow)>, StoreError> {
        let candidates = self.database_call(|db| {
            let query = format!(
                "SELECT {COLUMNS} FROM contexts WHERE spec_digest = ?1 AND lock_digest = ?2 AND state = 'idle'
                 AND origin = 'get' ORDER BY used DESC LIMIT 64"
            );
            let mut statement = db.prepare_cached(&query)?;
            let rows = statement.query_map([spec_digest, lock_digest], from_row)?;
            rows.collect::<Result<Vec<_>, _>>()
        })?;
        for row in candidates {
            let Some(lease) = self.try_lease(&row.id)? else { continue };
            let taken = self.database_call(|db| {
                db.execute(
                    "UPDATE contexts SET state = 'running', pid = ?2, used = ?3 WHERE id = ?1 AND state = 'idle'",
                    params![row.id, std::process::id(), crate::now()],
                )
            })?;
            if taken == 1 {
                return Ok(Some((lease, row)));
            }
        }
        Ok(None)
    }

    /// Holds a context when nobody does.
    ///
    /// # Errors
    /// [`StoreError::Io`].
    pub fn try_lease(&self, id: &str) -> Result<Option<Lease>, StoreError> {
        for attempt in 0..4 {
            if let Some(lock) = FileLock::try_acquire(&self.lease_path(id), true)? {
                return Ok(Some(Lease { id: id.to_owned(), lock }));
            }
            // Somebody who only asks whether it is held lets go at once.
            std::thread::sleep(Duration::from_millis(attempt));
        }
        Ok(None)
    }

    /// Takes the lease from a live holder: its lock file is replaced, and what it still holds guards nothing.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn take_lease_by_force(&self, id: &str) -> Result<Lease, StoreError> {
        let path = self.lease_path(id);
        let _ = self.fs.remove_file(&path);
        self.try_lease(id)?.ok_or_else(|| StoreError::InUse(id.to_owned()))
    }

    /// Whether a live process holds the context. Asked with a shared lock, which stands in nobody's way but a taker's.
    pub fn is_held(&self, id: &str) -> bool {
        self.lease_path(id).exists() && matches!(FileLock::try_acquire(&self.lease_path(id), false), Ok(None))
    }

    /// Keeps a context that this process works with, but does not hold, from `gc`.
    ///
    /// # Errors
    /// [`StoreError::Io`].
    pub fn attach_lock(&self, id: &str) -> Result<FileLock, StoreError> {
        FileLock::acquire(&self.lock(&format!("{id}.attached")), false, |_| Ok(()))
    }

    /// The lease of a context that may be swept, judged again with the lease in hand; `None` when somebody was faster.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn lease_to_sweep(&self, id: &str, kept_too: bool) -> Result<Option<Lease>, StoreError> {
        let Some(lease) = self.try_lease(id)? else { return Ok(None) };
        let Some(attached) = FileLock::try_acquire(&self.lock(&format!("{id}.attached")), true)? else { return Ok(None) };
        let row = match self.find_context(id) {
            Ok(row) if row.id == id => row,
            Ok(_) | Err(StoreError::NoContext(_)) => return Ok(None),
            Err(error) => return Err(error),
        };
        let lost = row.lost_its_holder();
        let expired = row.expires.is_some_and(|at| at < crate::now()) && (kept_too || row.origin != Origin::Kept);
        if !(lost || expired && row.state != State::Creating) {
            return Ok(None);
        }
        attached.remove();
        Ok(Some(lease))
    }

    /// Changes a context's state and owner and starts its idle time anew.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub fn set_context(
        &self,
        id: &str,
        state: State,
        origin: Origin,
        idle: Option<Duration>,
        error: Option<&str>,
    ) -> Result<(), StoreError> {
        let now = crate::now();
        let expires = idle.map(|idle| now + idle.as_secs_f64());
        self.database_call(|db| {
            db.execute(
                "UPDATE contexts SET state = ?2, origin = ?3, used = ?4, expires = ?5, error = ?6, pid = ?7 WHERE id = ?1",
                params![id, state.as_str(), origin.as_str(), now, expires, error, std::process::id()],
            )
        })
        .map(drop)
    }

    /// Fills in what is known only once the prefix is there.
    ///
    /// # Errors
    /// [`StoreError::NoContext`] when it was destroyed by then; [`StoreError::Database`].
    pub fn finish_context(&self, id: &str, lock_digest: &str, prefix: &str, payload: &str) -> Result<(), StoreError> {
        let found = self.database_call(|db| {
            db.execute(
                "UPDATE contexts SET state = 'running', lock_digest = ?2, prefix = ?3, payload = ?4 WHERE id = ?1",
                params![id, lock_digest, prefix, payload],
            )
        })?;
        if found == 0 { Err(StoreError::NoContext(id.to_owned())) } else { Ok(()) }
    }

    /// Notes that a context was used.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub fn touch_context(&self, id: &str, idle: Option<Duration>) -> Result<(), StoreError> {
        let now = crate::now();
        let expires = idle.map(|idle| now + idle.as_secs_f64());
        self.database_call(|db| db.execute("UPDATE contexts SET used = ?2, expires = ?3 WHERE id = ?1", params![id, now, expires]))
            .map(drop)
    }

    /// Every context, the newest last; a row whose holder died is told apart by [`Home::is_held`].
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub fn contexts(&self) -> Result<Vec<ContextRow>, StoreError> {
        self.database_call(|db| {
            let mut statement = db.prepare(&format!("SELECT {COLUMNS} FROM contexts ORDER BY created, id"))?;
            statement.query_map([], from_row)?.collect()
        })
    }

    /// Finds a context by the beginning of its id, or by any part of it that starts after a dash.
    ///
    /// # Errors
    /// [`StoreError::NoContext`], [`StoreError::Ambiguous`].
    pub fn find_context(&self, given: &str) -> Result<ContextRow, StoreError> {
        let exact =
            self.database_call(|db| db.query_row(&format!("SELECT {COLUMNS} FROM contexts WHERE id = ?1"), [given], from_row).optional())?;
        if let Some(row) = exact {
            return Ok(row);
        }
        if given.is_empty() {
            return Err(StoreError::NoContext(String::new()));
        }
        let upper = format!("{given}\u{10ffff}");
        let mut rows = self.database_call(|db| {
            let query = format!("SELECT {COLUMNS} FROM contexts WHERE id >= ?1 AND id < ?2 ORDER BY id LIMIT 9");
            let mut statement = db.prepare(&query)?;
            statement.query_map([given, upper.as_str()], from_row)?.collect::<Result<Vec<_>, _>>()
        })?;
        match rows.len() {
            0 => Err(StoreError::NoContext(given.to_owned())),
            1 => Ok(rows.remove(0)),
            _ => Err(StoreError::Ambiguous { given: given.to_owned(), ids: rows.into_iter().map(|r| r.id).collect() }),
        }
    }

    /// Removes a held context: its row first, then its folder and lease.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn remove_context(&self, lease: Lease) -> Result<(), StoreError> {
        self.database_call(|db| db.execute("DELETE FROM contexts WHERE id = ?1", [&lease.id]))?;
        let folder = self.context(&lease.id);
        self.fs.remove_tree(&folder).on("remove", &folder)?;
        let _ = self.fs.remove_file(&self.lock(&format!("{}.attached", lease.id)));
        lease.lock.remove();
        Ok(())
    }

    /// Ids of contexts that may be swept: a holder that died, or an idle one past its time. Looks at `most` rows from
    /// a random place, so that the cost does not grow with the contexts there are.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub fn sweepable(&self, most: usize, kept_too: bool) -> Result<Vec<ContextRow>, StoreError> {
        let origin = if kept_too { "1 = 1" } else { "origin <> 'kept'" };
        let limit = i64::try_from(most).unwrap_or(i64::MAX);
        let (mut rows, expired) = self.database_call(|db| {
            let mut held = Vec::new();
            for state in ["running", "creating"] {
                let range = "SELECT min(created), max(created) FROM contexts WHERE state = ?1";
                let (from, to): (Option<f64>, Option<f64>) =
                    db.prepare_cached(range)?.query_row([state], |row| Ok((row.get(0)?, row.get(1)?)))?;
                let (Some(from), Some(to)) = (from, to) else { continue };
                let start = if most > 10_000 { from } else { from + (to - from) * random_fraction() };
                let query = format!(
                    "SELECT {COLUMNS} FROM contexts WHERE state = ?1 AND created >= ?2 ORDER BY created LIMIT ?3"
                );
                let mut statement = db.prepare_cached(&query)?;
                let rows = statement.query_map(params![state, start, limit], from_row)?;
                for row in rows {
                    held.push(row?);
                }
            }
            let query = format!(
                "SELECT {COLUMNS} FROM contexts WHERE state IN ('idle', 'suspended', 'error', 'running') AND expires < ?1 AND {origin} LIMIT ?2"
            );
            let mut statement = db.prepare_cached(&query)?;
            let expired = statement.query_map(params![crate::now(), limit], from_row)?.collect::<Result<Vec<_>, _>>()?;
            Ok((held, expired))
        })?;
        rows.retain(|row| row.lost_its_holder() && !self.is_held(&row.id));
        for row in expired {
            if !rows.iter().any(|other| other.id == row.id) && !self.is_held(&row.id) {
                rows.push(row);
            }
        }
        Ok(rows)
    }

    /// Folders in `contexts/` without a row, as a crash leaves them; each with the lease to remove it by.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn context_folders_without_row(&self) -> Result<Vec<Lease>, StoreError> {
        let known: std::collections::HashSet<String> = self.contexts()?.into_iter().map(|row| row.id).collect();
        let folder = self.root().join("contexts");
        let mut leases = Vec::new();
        for entry in std::fs::read_dir(&folder).on("list", &folder)?.flatten() {
            let id = entry.file_name().to_string_lossy().into_owned();
            if known.contains(&id) {
                continue;
            }
            if let Some(lease) = self.try_lease(&id)? {
                // The maker may have finished between the listing and the lock.
                if matches!(self.find_context(&id), Err(StoreError::NoContext(_))) {
                    leases.push(lease);
                }
            }
        }
        Ok(leases)
    }
}
