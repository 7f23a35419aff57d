//! Traces: every session as JSON lines, written by a thread of their own. A failure to write never breaks a session.

use std::fs::{self, File};
use std::io::{BufWriter, Write as _};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use envharness_wire::json::push_string;

/// Lines that wait for the disk at most; more are left out, and that is told once.
const MOST_WAITING: usize = 64 * 1024;

enum Entry {
    Line(String, Vec<u8>),
    End(String),
}

/// The way to the writer.
#[derive(Debug, Clone)]
pub(crate) struct Tracer {
    sender: SyncSender<Entry>,
}

impl std::fmt::Debug for Entry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Entry")
    }
}

impl Tracer {
    /// Makes the folder and starts the writer.
    ///
    /// # Errors
    /// The folder cannot be made.
    pub(crate) fn start(folder: &Path) -> std::io::Result<Self> {
        fs::create_dir_all(folder)?;
        let (sender, receiver) = sync_channel(MOST_WAITING);
        let folder = folder.to_owned();
        std::thread::Builder::new().name("envharness-trace".to_owned()).spawn(move || write(&folder, &receiver))?;
        Ok(Self { sender })
    }

    /// One event of a session. `members` are keys and JSON texts.
    pub(crate) fn event(&self, session: &str, event: &str, members: &[(&str, &[u8])]) {
        let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
        let mut line = format!("{{\"time\":{time:.6},\"event\":").into_bytes();
        push_string(&mut line, event);
        for (key, value) in members {
            line.push(b',');
            push_string(&mut line, key);
            line.push(b':');
            // A message may span lines; a trace's line may not.
            line.extend(value.iter().map(|b| if *b == b'\n' || *b == b'\r' { b' ' } else { *b }));
        }
        line.extend_from_slice(b"}\n");
        if self.sender.try_send(Entry::Line(session.to_owned(), line)).is_err() {
            tracing::warn!(session, "the trace cannot be written as fast as it grows; lines are left out");
        }
    }

    /// The session has ended.
    pub(crate) fn end(&self, session: &str) {
        let _ = self.sender.try_send(Entry::End(session.to_owned()));
    }
}

fn write(folder: &Path, receiver: &Receiver<Entry>) {
    let mut files: std::collections::HashMap<String, BufWriter<File>> = std::collections::HashMap::new();
    // A full disk is told once, not with every step.
    let mut told = false;
    let mut tell = |what: String| {
        if !told {
            tracing::warn!("{what}; told once, and sessions go on without");
            told = true;
        }
    };
    let path = |session: &str| -> PathBuf { folder.join(format!("{session}.jsonl")) };
    loop {
        match receiver.recv_timeout(Duration::from_millis(200)) {
            Ok(Entry::Line(session, line)) => {
                // Many sessions at once must not hold as many files open.
                if files.len() > 256 && !files.contains_key(&session) {
                    files.clear();
                }
                let file = match files.entry(session) {
                    std::collections::hash_map::Entry::Occupied(open) => open.into_mut(),
                    std::collections::hash_map::Entry::Vacant(free) => {
                        match File::options().create(true).append(true).open(path(free.key())) {
                            Ok(file) => free.insert(BufWriter::new(file)),
                            Err(error) => {
                                tell(format!("cannot write the trace {}: {error}", path(free.key()).display()));
                                continue;
                            }
                        }
                    }
                };
                if let Err(error) = file.write_all(&line) {
                    tell(format!("cannot write a trace: {error}"));
                }
            }
            Ok(Entry::End(session)) => drop(files.remove(&session)),
            Err(RecvTimeoutError::Timeout) => files.values_mut().for_each(|file| drop(file.flush())),
            Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}
