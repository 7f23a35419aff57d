//! Containers as places for contexts: finding the engine, the image of a lock, and what a container is made of.

mod build;
mod files;
mod image;
mod janitor;
mod place;
mod resolve;
mod sync;

use std::path::{Path, PathBuf};
use std::time::Duration;

use envharness_engine::{Address, Call, Engine, Facts, Kind};
use envharness_spec::{Backend, Digest, Spec};
use envharness_store::{Home, write_atomic};

use crate::deadline::Deadline;
use crate::error::{IoContext as _, RigError};
use crate::event::Reporter;
use crate::settings::Settings;

pub(crate) use build::changed_context;
pub(crate) use files::{download_inside, host_of, upload_inside};
pub(crate) use image::{ImagePython, uv_platform};
pub(crate) use janitor::{remove_container, remove_strays};
pub(crate) use place::{ContainerPlace, Sight};

/// Waits for an engine as long as a create may take and its caller wants it.
pub(crate) struct Waiting<'a> {
    pub deadline: Deadline,
    pub reporter: &'a dyn Reporter,
    /// The longest single answer.
    pub most: Duration,
}

impl Call for Waiting<'_> {
    fn interrupted(&self) -> bool {
        self.reporter.interrupted()
    }

    fn left(&self) -> Option<Duration> {
        Some(self.deadline.left().map_or(self.most, |left| left.min(self.most)))
    }
}

impl<'a> Waiting<'a> {
    /// For answers that cost an engine little.
    pub(crate) fn short(settings: &Settings, deadline: Deadline, reporter: &'a dyn Reporter) -> Self {
        Self { deadline, reporter, most: settings.duration("timeouts.engine").unwrap_or(Duration::from_secs(120)) }
    }

    /// For pulls and builds.
    pub(crate) fn long(settings: &Settings, deadline: Deadline, reporter: &'a dyn Reporter) -> Self {
        Self { deadline, reporter, most: settings.duration("timeouts.pull").unwrap_or(Duration::from_secs(3600)) }
    }
}

/// The engine of a spec's backend.
pub(crate) fn kind_of(spec: &Spec) -> Kind {
    if spec.chosen_backend() == Backend::Podman { Kind::Podman } else { Kind::Docker }
}

/// Finds the engine of a backend and keeps its address with the store, so that a janitor knows where to look.
pub(crate) fn connect(settings: &Settings, home: &Home, kind: Kind) -> Result<Engine, RigError> {
    let user = rustix::process::geteuid().as_raw();
    let address = envharness_engine::find(kind, settings.text(&format!("{kind}_host")), settings.variables(), user)?;
    remember(home, &address)?;
    Ok(Engine::new(address)?)
}

/// The engine at an address that a context was made at.
pub(crate) fn reconnect(kind: &str, url: &str) -> Result<Engine, RigError> {
    let kind = Kind::parse(kind).unwrap_or(Kind::Docker);
    Ok(Engine::new(Address { kind, url: url.to_owned(), reason: "the context was made there".into() })?)
}

/// An engine's version, address and runtimes, for a person.
pub(crate) fn about(settings: &Settings, home: &Home, kind: &str) -> Result<String, RigError> {
    let engine = connect(settings, home, Kind::parse(kind).unwrap_or(Kind::Docker))?;
    let deadline = Deadline::new(Some(Duration::from_secs(5)));
    let facts = engine.facts(&Waiting::short(settings, deadline, &crate::event::Quiet))?;
    let root = if facts.rootless { ", without root" } else { "" };
    let limits = if facts.cgroup.is_empty() { ", enforces no limits" } else { "" };
    let runtimes = if facts.runtimes.is_empty() { String::new() } else { format!(", runtimes {}", facts.runtimes.join(", ")) };
    Ok(format!("{} at {}{root}{limits}{runtimes}", facts.version, engine.address().url))
}

/// Whose store it is, on everything that an engine keeps for it: a random word, since two machines may share an engine.
pub(crate) fn home_label(home: &Home) -> Result<String, RigError> {
    let path = engines(home).join("store");
    if let Some(label) = envharness_store::read_text(&path)? {
        return Ok(label);
    }
    std::fs::create_dir_all(engines(home)).on("create", &engines(home))?;
    let temporary = engines(home).join(format!(".{}", envharness_store::random_suffix(8)));
    std::fs::write(&temporary, envharness_store::random_suffix(24)).on("write", &temporary)?;
    // Of several at once the first one's word holds.
    let linked = std::fs::hard_link(&temporary, &path);
    let _ = std::fs::remove_file(&temporary);
    match linked {
        Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => Err(error).on("write", &path),
        _ => Ok(envharness_store::read_text(&path)?.unwrap_or_default()),
    }
}

fn engines(home: &Home) -> PathBuf {
    home.root().join("engines")
}

fn remember(home: &Home, address: &Address) -> Result<(), RigError> {
    let path = engines(home).join(&Digest::of(&address.url).hex()[..16]);
    if !path.exists() {
        std::fs::create_dir_all(engines(home)).on("create", &engines(home))?;
        write_atomic(&path, format!("{}\n{}\n", address.kind, address.url).as_bytes())?;
    }
    Ok(())
}

/// Every engine that contexts of the store were made at.
pub(crate) fn remembered(home: &Home) -> Vec<(Kind, String)> {
    let entries = std::fs::read_dir(engines(home)).into_iter().flatten().flatten();
    let texts = entries.filter_map(|entry| std::fs::read_to_string(entry.path()).ok());
    texts.filter_map(|text| text.split_once('\n').and_then(|(kind, url)| Some((Kind::parse(kind)?, url.trim().to_owned())))).collect()
}

/// What the engine is, asked once for each start of it.
pub(crate) fn facts(home: &Home, engine: &Engine, call: &dyn Call) -> Result<Facts, RigError> {
    use std::os::unix::fs::MetadataExt as _;
    let socket = engine.address().socket();
    let stamp =
        socket.as_deref().and_then(|path| std::fs::metadata(path).ok()).map(|m| format!("1 {} {}.{}", m.ino(), m.ctime(), m.ctime_nsec()));
    let key = Path::new("engine").join(engine.address().url.trim_start_matches("unix://").trim_start_matches('/'));
    if let Some(stamp) = &stamp
        && let Some(text) = home.known_interpreter(&key, stamp)?
        && let Ok(known) = serde_json::from_str(&text)
    {
        return Ok(known);
    }
    let known = engine.facts(call)?;
    if let Some(stamp) = &stamp {
        home.remember_interpreter(&key, stamp, &serde_json::to_string(&known).unwrap_or_default())?;
    }
    Ok(known)
}
