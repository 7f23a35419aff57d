//! The one stream of events that feeds terminal, JSON and log.

use std::path::PathBuf;
use std::time::Duration;

use envharness_spec::human_bytes;

/// What happens on the way from a spec to a process.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// An interpreter was chosen.
    Python {
        /// Its version.
        version: String,
        /// Its path.
        path: PathBuf,
        /// Why this one.
        reason: String,
    },
    /// A backend was chosen.
    Backend {
        /// Which.
        backend: String,
        /// Why this one.
        reason: String,
    },
    /// Versions are being looked for.
    Resolving {
        /// The spec's name.
        name: String,
    },
    /// Versions were found.
    Resolved {
        /// How many packages.
        packages: usize,
        /// How long it took.
        elapsed: Duration,
    },
    /// A lock was written.
    LockWritten {
        /// Where.
        path: PathBuf,
        /// What is different from the one before.
        changes: Vec<String>,
    },
    /// Another process builds the same prefix; this one waits.
    Waiting {
        /// What for.
        what: String,
    },
    /// A prefix is being built.
    Building {
        /// How many packages.
        packages: usize,
    },
    /// A package is on its way from the index.
    Downloading {
        /// Which, with its size.
        what: String,
    },
    /// A package has arrived.
    Downloaded {
        /// Which.
        what: String,
    },
    /// Packages are on their way.
    Progress {
        /// How many bytes of them have come.
        bytes: u64,
        /// How many bytes the packages have that have begun to come.
        total: u64,
    },
    /// A prefix was published.
    Built {
        /// How many packages.
        packages: usize,
        /// How long it took.
        elapsed: Duration,
    },
    /// Byte-code is being compiled.
    Compiling {
        /// How many packages are left.
        packages: usize,
    },
    /// An image is being made, sent or fetched.
    Imaging {
        /// What is done now.
        what: String,
    },
    /// A prefix was copied for a context that may change it.
    Copied {
        /// Its size.
        size: String,
        /// How long it took.
        elapsed: Duration,
    },
    /// A context is there.
    Created {
        /// Its id.
        id: String,
        /// Whether an idle one was taken.
        reused: bool,
        /// How long it took.
        elapsed: Duration,
    },
    /// Something a person should know.
    Warning {
        /// What.
        message: String,
        /// What to do.
        hint: Option<String>,
    },
}

impl Event {
    /// A stable name for machine-readable output.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Python { .. } => "python",
            Self::Backend { .. } => "backend",
            Self::Progress { .. } => "progress",
            Self::Resolving { .. } => "resolving",
            Self::Resolved { .. } => "resolved",
            Self::LockWritten { .. } => "lock-written",
            Self::Waiting { .. } => "waiting",
            Self::Building { .. } => "building",
            Self::Downloading { .. } => "downloading",
            Self::Downloaded { .. } => "downloaded",
            Self::Built { .. } => "built",
            Self::Compiling { .. } => "compiling",
            Self::Imaging { .. } => "imaging",
            Self::Copied { .. } => "copied",
            Self::Created { .. } => "created",
            Self::Warning { .. } => "warning",
        }
    }

    /// The text for a person.
    pub fn text(&self) -> String {
        let time = |d: &Duration| if d.as_secs() >= 10 { format!("{} s", d.as_secs()) } else { format!("{} ms", d.as_millis()) };
        match self {
            Self::Python { version, path, reason } => format!("Using Python {version} at {} ({reason})", path.display()),
            Self::Backend { backend, reason } => format!("Using the backend {backend} ({reason})"),
            Self::Progress { bytes, total } => format!("Downloading, {} of {}", human_bytes(*bytes), human_bytes(*total)),
            Self::Resolving { name } => format!("Resolving {name}"),
            Self::Resolved { packages, elapsed } => format!("Resolved {} in {}", counted(*packages, "package"), time(elapsed)),
            Self::LockWritten { path, changes } if changes.is_empty() => format!("Wrote {}", path.display()),
            Self::LockWritten { path, changes } => format!("Wrote {} ({} changed)", path.display(), changes.len()),
            Self::Waiting { what } => format!("Waiting for {what}"),
            Self::Building { packages } => format!("Installing {}", counted(*packages, "package")),
            Self::Downloading { what } => format!("Downloading {what}"),
            Self::Downloaded { what } => format!("Downloaded {what}"),
            Self::Built { packages, elapsed } => format!("Installed {} in {}", counted(*packages, "package"), time(elapsed)),
            Self::Compiling { packages } => format!("Compiling {}", counted(*packages, "package")),
            Self::Imaging { what } => what.clone(),
            Self::Copied { size, elapsed } => format!("Copied {size} in {}", time(elapsed)),
            Self::Created { id, reused, elapsed } => {
                format!("{} {id} in {}", if *reused { "Took" } else { "Created" }, time(elapsed))
            }
            Self::Warning { message, .. } => message.clone(),
        }
    }
}

/// A count with its noun: `1 package`, `2 packages`.
pub fn counted(count: usize, noun: &str) -> String {
    if count == 1 { format!("1 {noun}") } else { format!("{count} {noun}s") }
}

/// Receives events and says whether to go on.
pub trait Reporter: Sync {
    /// Something happened.
    fn event(&self, event: &Event);

    /// Asked often while something runs; `true` stops it with [`crate::RigError::Interrupted`].
    fn interrupted(&self) -> bool {
        false
    }
}

/// A reporter that keeps nothing.
#[derive(Debug, Clone, Copy, Default)]
pub struct Quiet;

impl Reporter for Quiet {
    fn event(&self, event: &Event) {
        tracing::debug!(event = event.name(), "{}", event.text());
    }
}
