//! From packages to files in a folder.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rattler::install::{ExternalSymlinkPolicy, Installer, InstallerError, LinkOptions, Reporter, Transaction};
use rattler_conda_types::{PrefixRecord, RepoDataRecord};

use crate::Conda;
use crate::channel::Channels;
use crate::error::{CondaError, chain, os_code};
use crate::package::Package;
use crate::virtual_packages::subdir;

/// How files come from the cache of extracted packages into a prefix.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Linking {
    /// Hard links, else copies.
    #[default]
    Hardlink,
    /// Clones (reflinks), else copies.
    Reflink,
    /// Copies.
    Copy,
}

/// Told of what is on its way.
pub trait PackageReporter: Send + Sync {
    /// A package begins to come; its file name and size in bytes.
    fn fetching(&self, package: &str, size: Option<u64>);
    /// Bytes of a package that have come by now.
    fn progress(&self, package: &str, bytes: u64, total: Option<u64>);
    /// A package has come.
    fn fetched(&self, package: &str);
}

/// What is installed where.
pub struct InstallRequest<'a> {
    /// The packages, all of one platform.
    pub packages: &'a [Package],
    /// The platform.
    pub platform: &'a str,
    /// The folder that relative channels start from.
    pub base: &'a Path,
    /// The folder that is filled.
    pub staged: &'a Path,
    /// The path that the folder will have: what packages know as their prefix.
    pub target: &'a Path,
    /// How files come into it.
    pub linking: Linking,
    /// Whether extracted packages are hashed before they are used.
    pub thorough: bool,
    /// Whether post-link scripts run.
    pub link_scripts: bool,
}

/// The files that link scripts have, by their endings.
const SCRIPTS: [&str; 2] = ["-post-link.sh", "-pre-link.sh"];

impl Conda {
    /// Fills a folder. Returns the packages whose link scripts were left out. `stop` is asked every 50 ms.
    ///
    /// # Errors
    /// [`CondaError::Fetch`], [`CondaError::Install`]; the folder is then half filled and the caller's to remove.
    pub fn install(
        &self,
        request: &InstallRequest<'_>,
        reporter: Arc<dyn PackageReporter>,
        stop: &dyn Fn() -> bool,
    ) -> Result<Vec<String>, CondaError> {
        let platform = subdir(request.platform)?;
        let names: Vec<String> = request.packages.iter().map(|package| package.channel.clone()).collect();
        let channels = Channels::parse(&names, request.base, &self.options.mirrors)?;
        let records = request
            .packages
            .iter()
            .map(|package| package.to_record(&channels, request.base, &self.options.mirrors))
            .collect::<Result<Vec<_>, _>>()?;
        let installer = Installer::new()
            .with_package_cache(self.package_cache(request.thorough))
            .with_download_client(self.client.clone())
            .with_target_platform(platform)
            .with_installed_packages(Vec::new())
            .with_alternative_target_prefix(request.target)
            .with_execute_link_scripts(request.link_scripts)
            .with_external_symlink_policy(ExternalSymlinkPolicy::Allow)
            .with_link_options(link_options(request.linking))
            .with_reporter(Bridge::new(reporter));
        let staged = request.staged.to_owned();
        // Linking runs in a pool of its own: the process-wide one would not survive a fork.
        let pool = rayon::ThreadPoolBuilder::new().num_threads(1 + threads()).build();
        let pool = pool.map_err(|error| CondaError::Runtime(std::io::Error::other(error)))?;
        // `stop` stays on this thread; the pool's sees a flag.
        let (done, waiting) = std::sync::mpsc::channel();
        let halted = Arc::new(std::sync::atomic::AtomicBool::new(false));
        let result = std::thread::scope(|scope| {
            let flag = Arc::clone(&halted);
            let pool = &pool;
            let work = scope.spawn(move || {
                let result = pool.install(|| {
                    self.wait(async { installer.install(&staged, records).await.map_err(|error| failed(&error)) }, &|| {
                        flag.load(Ordering::Relaxed)
                    })
                });
                let _ = done.send(());
                result
            });
            while waiting.recv_timeout(crate::ASKED_EVERY).is_err_and(|error| error == std::sync::mpsc::RecvTimeoutError::Timeout) {
                if stop() {
                    halted.store(true, Ordering::Relaxed);
                }
            }
            work.join()
        });
        match result {
            Ok(result) => drop(result?),
            Err(_) => return Err(CondaError::Runtime(std::io::Error::other("a thread ended early"))),
        }
        Ok(if request.link_scripts { Vec::new() } else { scripts_of(request) })
    }
}

fn threads() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

fn link_options(linking: Linking) -> LinkOptions {
    let (hard, reference) = match linking {
        Linking::Hardlink => (None, Some(false)),
        Linking::Reflink => (Some(false), None),
        Linking::Copy => (Some(false), Some(false)),
    };
    LinkOptions { allow_symbolic_links: Some(true), allow_hard_links: hard, allow_ref_links: reference }
}

/// Packages that bring a script which conda would have run.
fn scripts_of(request: &InstallRequest<'_>) -> Vec<String> {
    let has = |package: &&Package| {
        let name = &package.name;
        SCRIPTS.iter().any(|ending| request.staged.join("bin").join(format!(".{name}{ending}")).exists())
    };
    request.packages.iter().filter(has).map(|package| package.name.clone()).collect()
}

fn failed(error: &InstallerError) -> CondaError {
    let reason = error.to_string();
    let cause = std::error::Error::source(error).map_or_else(|| reason.clone(), chain);
    match error {
        InstallerError::FailedToFetch(package, _) => CondaError::Fetch { package: package.clone(), reason: cause },
        InstallerError::LinkError(package, _) => CondaError::Install { package: package.clone(), reason: cause, code: os_code(error) },
        InstallerError::Cancelled => CondaError::Stopped,
        _ => CondaError::Install { package: "the prefix".into(), reason: chain(error), code: os_code(error) },
    }
}

/// rattler's reporter as ours: numbers become file names.
struct Bridge {
    to: Arc<dyn PackageReporter>,
    packages: std::sync::Mutex<Vec<(String, Option<u64>)>>,
    other: AtomicUsize,
}

impl Bridge {
    fn new(to: Arc<dyn PackageReporter>) -> Self {
        Self { to, packages: std::sync::Mutex::default(), other: AtomicUsize::new(0) }
    }

    fn next(&self) -> usize {
        self.other.fetch_add(1, Ordering::Relaxed)
    }

    fn package(&self, number: usize) -> (String, Option<u64>) {
        let packages = self.packages.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        packages.get(number).cloned().unwrap_or_default()
    }
}

impl Reporter for Bridge {
    fn on_transaction_start(&self, _: &Transaction<PrefixRecord, RepoDataRecord>) {}
    fn on_transaction_operation_start(&self, _: usize) {}
    fn on_populate_cache_start(&self, _: usize, record: &RepoDataRecord) -> usize {
        let mut packages = self.packages.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        packages.push((record.identifier.to_file_name(), record.package_record.size));
        packages.len() - 1
    }
    fn on_validate_start(&self, _: usize) -> usize {
        self.next()
    }
    fn on_validate_complete(&self, _: usize) {}
    fn on_download_start(&self, entry: usize) -> usize {
        let (name, size) = self.package(entry);
        self.to.fetching(&name, size);
        entry
    }
    fn on_download_progress(&self, entry: usize, progress: u64, total: Option<u64>) {
        self.to.progress(&self.package(entry).0, progress, total);
    }
    fn on_download_completed(&self, entry: usize) {
        self.to.fetched(&self.package(entry).0);
    }
    fn on_populate_cache_complete(&self, _: usize) {}
    fn on_unlink_start(&self, _: usize, _: &PrefixRecord) -> usize {
        self.next()
    }
    fn on_unlink_complete(&self, _: usize) {}
    fn on_link_start(&self, _: usize, _: &RepoDataRecord) -> usize {
        self.next()
    }
    fn on_link_complete(&self, _: usize) {}
    fn on_transaction_operation_complete(&self, _: usize) {}
    fn on_transaction_complete(&self) {}
    fn on_post_link_start(&self, package: &str, script: &str) -> usize {
        tracing::info!(package, script, "post-link script");
        self.next()
    }
    fn on_post_link_complete(&self, _: usize, success: bool) {
        tracing::info!(success, "post-link script ended");
    }
    fn on_pre_unlink_start(&self, _: &str, _: &str) -> usize {
        self.next()
    }
    fn on_pre_unlink_complete(&self, _: usize, _: bool) {}
}
