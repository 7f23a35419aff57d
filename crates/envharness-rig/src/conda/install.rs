//! conda packages into a staged prefix.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use envharness_conda::{CondaError, InstallRequest, Linking, Package, PackageReporter, missing_virtual_packages};
use envharness_spec::{Lock, Platform, Spec, human_bytes};
use envharness_store::Home;

use crate::conda::{base_of, open, package_of};
use crate::deadline::Deadline;
use crate::error::RigError;
use crate::event::{Event, Reporter};
use crate::settings::Settings;

/// Fills `staged` with the conda packages of a lock, as if it lay at `target`.
///
/// # Errors
/// [`RigError::Conda`], [`RigError::Timeout`], [`RigError::Interrupted`].
#[expect(clippy::too_many_arguments, reason = "one call, and each is another thing")]
pub(crate) fn install(
    settings: &Settings,
    home: &Home,
    reporter: &dyn Reporter,
    deadline: Deadline,
    lock: &Lock,
    spec: &Spec,
    staged: &Path,
    target: &Path,
    thorough: bool,
) -> Result<(), RigError> {
    let platform = Platform::current();
    let packages: Vec<Package> = lock.conda_packages_for(&platform).map(|(package, source)| package_of(package, source)).collect();
    refuse_other_machine(&packages, &platform, spec)?;
    let base = base_of(spec);
    let linking = match settings.text("link_mode") {
        "copy" => Linking::Copy,
        "clone" => Linking::Reflink,
        _ => Linking::Hardlink,
    };
    warn_of_copies(home, staged, linking, reporter);
    let request = InstallRequest {
        packages: &packages,
        platform: platform.as_str(),
        base: &base,
        staged,
        target,
        linking,
        thorough,
        link_scripts: spec.link_scripts,
    };
    let progress = Arc::new(Progress::default());
    // Events are told on this thread: a reporter need not be another's.
    let stop = || {
        progress.tell(reporter);
        reporter.interrupted() || deadline.check("installing", String::new).is_err()
    };
    let left_out = open(settings, home)?.install(&request, Arc::clone(&progress) as Arc<dyn PackageReporter>, &stop);
    progress.tell(reporter);
    let left_out = left_out.map_err(|error| stopped(error, reporter, deadline, "installing"))?;
    if !left_out.is_empty() {
        let message = format!("post-link scripts of {} are not run", left_out.join(", "));
        reporter.event(&Event::Warning { message, hint: Some("set `link_scripts: true` in the spec to run them".into()) });
    }
    Ok(())
}

/// A lock that was made for a machine with other hardware is refused before anything is fetched.
fn refuse_other_machine(packages: &[Package], platform: &Platform, spec: &Spec) -> Result<(), RigError> {
    let missing = missing_virtual_packages(packages, platform.as_str(), &spec.virtual_packages)?;
    if missing.is_empty() {
        return Ok(());
    }
    Err(RigError::from(CondaError::Unsolvable {
        platform: platform.conda_name().to_owned(),
        explanation: missing.iter().map(|(package, wanted)| format!("`{package}` needs `{wanted}`, which this machine has not")).collect(),
        missing_virtual: missing.into_iter().map(|(_, wanted)| wanted).collect(),
    }))
}

/// Links do not cross file systems: then files are copied, which takes space and time.
fn warn_of_copies(home: &Home, staged: &Path, linking: Linking, reporter: &dyn Reporter) {
    use std::os::unix::fs::MetadataExt as _;
    let device = |path: &Path| path.ancestors().find_map(|folder| std::fs::metadata(folder).ok()).map(|metadata| metadata.dev());
    if linking == Linking::Hardlink && device(home.cache()) != device(staged) {
        let message = "the cache lies on another file system than the store, so packages are copied".to_owned();
        let hint = Some("put ENVHARNESS_CACHE and ENVHARNESS_HOME on one file system".to_owned());
        reporter.event(&Event::Warning { message, hint });
    }
}

/// What made the work stop, in the rig's words.
pub(crate) fn stopped(error: CondaError, reporter: &dyn Reporter, deadline: Deadline, action: &str) -> RigError {
    match error {
        CondaError::Stopped if reporter.interrupted() => RigError::Interrupted,
        CondaError::Stopped => deadline.check(action, String::new).err().unwrap_or(RigError::Interrupted),
        other => RigError::from(other),
    }
}

/// Keeps what the fetching threads say until the caller's thread tells it.
#[derive(Default)]
struct Progress {
    events: Mutex<Vec<Event>>,
    bytes: Mutex<Transferring>,
}

/// Bytes of all packages on their way.
#[derive(Default)]
struct Transferring {
    now: std::collections::BTreeMap<String, u64>,
    total: u64,
    told: u64,
}

/// Told again after so many bytes.
const STEP: u64 = 8 << 20;

impl Progress {
    fn push(&self, event: Event) {
        self.events.lock().unwrap_or_else(PoisonError::into_inner).push(event);
    }

    fn tell(&self, reporter: &dyn Reporter) {
        let events = std::mem::take(&mut *self.events.lock().unwrap_or_else(PoisonError::into_inner));
        events.iter().for_each(|event| reporter.event(event));
    }
}

impl PackageReporter for Progress {
    fn fetching(&self, package: &str, size: Option<u64>) {
        self.bytes.lock().unwrap_or_else(PoisonError::into_inner).total += size.unwrap_or(0);
        let size = size.map(|size| format!(" ({})", human_bytes(size))).unwrap_or_default();
        self.push(Event::Downloading { what: format!("{package}{size}") });
    }

    fn progress(&self, package: &str, bytes: u64, _: Option<u64>) {
        let mut all = self.bytes.lock().unwrap_or_else(PoisonError::into_inner);
        all.now.insert(package.to_owned(), bytes);
        let sum: u64 = all.now.values().sum();
        if sum >= all.told + STEP {
            all.told = sum;
            let total = all.total.max(sum);
            drop(all);
            self.push(Event::Progress { bytes: sum, total });
        }
    }

    fn fetched(&self, package: &str) {
        self.push(Event::Downloaded { what: package.to_owned() });
    }
}
