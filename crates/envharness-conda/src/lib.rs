//! conda for envharness, on the rattler crates: channels, solving, the cache of extracted packages, and installing into a
//! prefix.
//!
//! [`Conda`] is the one door. [`Conda::solve`] turns match specs into [`Package`]s, which a lock keeps; [`Conda::install`]
//! puts them into a folder, as if it lay at another path. Nothing of rattler shows: its crates change often, and this is
//! the one place that follows them.

mod channel;
mod client;
mod error;
mod exchange;
mod install;
mod match_spec;
mod package;
mod solve;
mod virtual_packages;

use std::collections::BTreeMap;
use std::future::Future;
use std::path::PathBuf;
use std::time::Duration;

use rattler_cache::package_cache::PackageCache;
use rattler_networking::LazyClient;
use rattler_repodata_gateway::Gateway;

pub use channel::Channels;
pub use error::CondaError;
pub use exchange::{Listed, Pins, PipFile, is_explicit, read_explicit, read_lock, write_conda_lock, write_explicit, write_pixi};
pub use install::{InstallRequest, Linking, PackageReporter};
pub use match_spec::{name_of, normalize, version_order};
pub use package::Package;
pub use solve::{Priority, Solution, SolveRequest};
pub use virtual_packages::{missing_virtual_packages, virtual_packages};

/// What conda works with.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// The folder of downloads: `pkgs/` holds extracted packages, `repodata/` what channels said.
    pub cache: PathBuf,
    /// Never use the network.
    pub offline: bool,
    /// How often a request that failed for a passing reason is sent again.
    pub retries: u32,
    /// Channels by name at other addresses than the public ones.
    pub mirrors: BTreeMap<String, String>,
}

/// The network, the caches and a runtime of one operation. It belongs to the process that made it: a forked child makes
/// its own.
pub struct Conda {
    options: Options,
    runtime: tokio::runtime::Runtime,
    client: LazyClient,
}

/// How often a caller that may want to stop is asked.
const ASKED_EVERY: Duration = Duration::from_millis(50);

impl Conda {
    /// Makes the runtime; nothing is read or asked yet.
    ///
    /// # Errors
    /// [`CondaError::Runtime`] when no thread can be started.
    pub fn new(options: Options) -> Result<Self, CondaError> {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().map_err(CondaError::Runtime)?;
        let client = client::client(&options)?;
        Ok(Self { options, runtime, client })
    }

    /// Waits for a future, asking every 50 ms whether to go on.
    fn wait<T>(&self, work: impl Future<Output = Result<T, CondaError>>, stop: &dyn Fn() -> bool) -> Result<T, CondaError> {
        self.runtime.block_on(async {
            tokio::pin!(work);
            loop {
                match tokio::time::timeout(ASKED_EVERY, &mut work).await {
                    Ok(result) => return result,
                    Err(_) if stop() => return Err(CondaError::Stopped),
                    Err(_) => {}
                }
            }
        })
    }

    fn package_cache(&self, thorough: bool) -> PackageCache {
        let mode = if thorough { rattler_cache::validation::ValidationMode::Full } else { rattler_cache::validation::ValidationMode::Skip };
        PackageCache::new_layered([self.options.cache.join("pkgs")], false, mode)
    }

    fn gateway(&self) -> Gateway {
        let mut config = rattler_repodata_gateway::ChannelConfig::default();
        if self.options.offline {
            config.default.cache_action = rattler_repodata_gateway::fetch::CacheAction::ForceCacheOnly;
        }
        Gateway::builder()
            .with_client(self.client.clone())
            .with_channel_config(config)
            .with_cache_dir(self.options.cache.join("repodata"))
            .with_package_cache(self.package_cache(false))
            .finish()
    }
}
