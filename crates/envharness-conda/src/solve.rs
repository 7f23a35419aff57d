//! From match specs to packages.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::str::FromStr as _;

use rattler_conda_types::{Channel, GenericVirtualPackage, MatchSpec, RepoDataRecord, Subdir};
use rattler_repodata_gateway::{Gateway, GatewayError, RepoData};
use rattler_solve::{ChannelPriority, ExcludeNewer, RepoDataIter, SolveError, SolverImpl as _, SolverTask, resolvo};

use crate::channel::Channels;
use crate::error::{CondaError, chain};
use crate::match_spec::parse;
use crate::package::Package;
use crate::virtual_packages::{detect, subdir};
use crate::{Conda, virtual_packages};

/// How channels stand to each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Priority {
    /// The first channel that has a package is the only one asked for it.
    #[default]
    Strict,
    /// Earlier channels are asked first, later ones where none of theirs fits.
    Flexible,
    /// The newest version counts, whichever channel has it.
    Disabled,
}

/// What is to be solved.
#[derive(Debug, Clone, Default)]
pub struct SolveRequest {
    /// The channels, in order of priority.
    pub channels: Vec<String>,
    /// The folder that relative channels start from.
    pub base: PathBuf,
    /// Match specs of what is wanted.
    pub specs: Vec<String>,
    /// Match specs that packages must answer when they are there.
    pub constraints: Vec<String>,
    /// The platform, in our words or conda's.
    pub platform: String,
    /// Virtual packages by name that are said instead of detected.
    pub virtual_packages: BTreeMap<String, String>,
    /// Packages that are kept where they still fit.
    pub locked: Vec<Package>,
    /// How channels stand to each other.
    pub priority: Priority,
    /// Packages built after this RFC 3339 date are not seen.
    pub exclude_newer: Option<String>,
}

/// What was found.
#[derive(Debug, Clone, Default)]
pub struct Solution {
    /// The packages, sorted by name.
    pub packages: Vec<Package>,
    /// The virtual packages that it was solved with, `__glibc=2.36`.
    pub virtual_packages: Vec<String>,
}

/// Platforms that are looked into when a package is missing.
const PLATFORMS: [Subdir; 5] = [Subdir::Linux64, Subdir::LinuxAarch64, Subdir::Osx64, Subdir::OsxArm64, Subdir::Win64];
/// A name is near when it is this similar, from 0 to 1.
const NEAR: f64 = 0.8;
const MOST_NEAR: usize = 3;

impl Conda {
    /// Finds packages that answer all match specs. `stop` is asked every 50 ms.
    ///
    /// # Errors
    /// [`CondaError`].
    pub fn solve(&self, request: &SolveRequest, stop: &dyn Fn() -> bool) -> Result<Solution, CondaError> {
        let platform = subdir(&request.platform)?;
        let channels = Channels::parse(&request.channels, &request.base, &self.options.mirrors)?;
        let specs = request.specs.iter().map(|text| parse(text)).collect::<Result<Vec<_>, _>>()?;
        let constraints = request.constraints.iter().map(|text| parse(text)).collect::<Result<Vec<_>, _>>()?;
        let machine = detect(platform, &request.virtual_packages)?;
        let gateway = self.gateway();
        // A locked package is a candidate too, so that it is found though a sharded channel is asked for little.
        let records = self.wait(fetch(&gateway, &channels, platform, &specs), stop)?;
        let job = Job { conda: self, gateway: &gateway, channels: &channels, platform, stop };
        job.check_names(&specs, &records)?;
        let locked: Vec<RepoDataRecord> =
            request.locked.iter().filter_map(|p| p.to_record(&channels, &request.base, &self.options.mirrors).ok()).collect();
        let known = |wanted: &RepoDataRecord| records.iter().flat_map(RepoData::iter).find(|record| record.url == wanted.url);
        let task = SolverTask {
            locked_packages: locked.iter().filter_map(known).collect(),
            pinned_packages: Vec::new(),
            virtual_packages: machine.clone(),
            specs,
            constraints,
            timeout: None,
            channel_priority: match request.priority {
                Priority::Strict => ChannelPriority::Strict,
                Priority::Flexible => ChannelPriority::Flexible,
                Priority::Disabled => ChannelPriority::Disabled,
            },
            exclude_newer: request.exclude_newer.as_deref().map(cutoff).transpose()?,
            strategy: rattler_solve::SolveStrategy::default(),
            dependency_overrides: Vec::new(),
            excluded_candidates: std::collections::HashMap::new(),
            cancellation_token: None,
            available_packages: records.iter().map(|data| RepoDataIter(data.iter())).collect::<Vec<_>>(),
        };
        let solved = resolvo::Solver.solve(task).map_err(|error| unsolved(error, platform, &machine))?;
        let mut packages: Vec<Package> = solved.records.iter().map(|record| Package::of_record(record, &channels)).collect();
        packages.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(Solution { packages, virtual_packages: virtual_packages(&request.platform, &request.virtual_packages)? })
    }
}

/// One solve's means.
struct Job<'a> {
    conda: &'a Conda,
    gateway: &'a Gateway,
    channels: &'a Channels,
    platform: Subdir,
    stop: &'a dyn Fn() -> bool,
}

impl Job<'_> {
    /// Refuses a name that no channel has, before the solver says so in more words.
    fn check_names(&self, specs: &[MatchSpec], records: &[RepoData]) -> Result<(), CondaError> {
        for spec in specs {
            let Some(name) = spec.name.as_exact().filter(|name| !name.as_normalized().starts_with("__")) else { continue };
            if records.iter().flat_map(RepoData::iter).any(|record| record.package_record.name == *name) {
                continue;
            }
            let wanted = name.as_normalized();
            let here = self.names([self.platform, Subdir::NoArch]);
            let elsewhere = PLATFORMS.into_iter().filter(|other| *other != self.platform);
            let elsewhere = elsewhere.filter(|other| self.names([*other]).iter().any(|name| name == wanted));
            let mut near: Vec<(f64, String)> = here.into_iter().map(|name| (strsim::jaro_winkler(wanted, &name), name)).collect();
            near.retain(|(score, _)| *score >= NEAR);
            near.sort_by(|a, b| b.0.total_cmp(&a.0).then_with(|| a.1.cmp(&b.1)));
            return Err(CondaError::NoPackage {
                name: wanted.to_owned(),
                channels: self.channels.names(),
                platform: self.platform.to_string(),
                near: near.into_iter().take(MOST_NEAR).map(|(_, name)| name).collect(),
                elsewhere: elsewhere.map(|platform| platform.to_string()).collect(),
            });
        }
        Ok(())
    }

    /// Every name of some platforms; none where the channels do not have them.
    fn names<const N: usize>(&self, platforms: [Subdir; N]) -> Vec<String> {
        let query = self.gateway.names(self.channels.all().collect::<Vec<Channel>>(), platforms);
        let names = self.conda.wait(async { Ok(query.execute().await.map(|found| found.names).unwrap_or_default()) }, self.stop);
        names.unwrap_or_default().into_iter().map(|name| name.as_normalized().to_owned()).collect()
    }
}

async fn fetch(gateway: &Gateway, channels: &Channels, platform: Subdir, specs: &[MatchSpec]) -> Result<Vec<RepoData>, CondaError> {
    let wanted: Vec<Channel> = channels.all().collect();
    let query = gateway.query(wanted, [platform, Subdir::NoArch], specs.to_vec()).recursive(true);
    let found = query.execute().await.map_err(|error| unreachable(&error, channels, platform))?;
    Ok(found.into_iter().collect())
}

fn unreachable(error: &GatewayError, channels: &Channels, platform: Subdir) -> CondaError {
    let reason = chain(error);
    let named = channels.all().zip(channels.names()).find(|(channel, _)| {
        let address = crate::error::without_credentials(channel.base_url.as_str());
        reason.contains(address.trim_end_matches('/')) || reason.contains(&format!("'{}'", channel.canonical_name()))
    });
    let channel = named.map_or_else(|| channels.names().join(", "), |(_, name)| name);
    let says = |signs: &[&str]| signs.iter().any(|sign| reason.contains(sign));
    let hint = if says(&["offline"]) || matches!(error, GatewayError::ShardedIndexNotCached(_) | GatewayError::ShardNotCached(_)) {
        "run once without `--offline`: what the channel has is not downloaded yet"
    } else if says(&["401", "403", "Unauthorized", "Forbidden"]) {
        "give the channel its credentials: in `~/.netrc`, or in the file that RATTLER_AUTH_FILE names"
    } else if matches!(error, GatewayError::SubdirNotFoundError(_)) {
        "there is no such channel there: check `channels`; `mirrors` in the settings names another address"
    } else if says(&["EOF", "expected", "invalid", "deserialize", "parse", "decompress", "incomplete", "frame"]) {
        "what came is broken: try again; where it stays so, tell the channel's owner"
    } else {
        "check the network, the proxy and `channels`; `--offline` works from what is downloaded"
    };
    CondaError::Unreachable { channel, platform: platform.to_string(), reason, hint: Some(hint.to_owned()) }
}

fn unsolved(error: SolveError, platform: Subdir, machine: &[GenericVirtualPackage]) -> CondaError {
    let text = match error {
        SolveError::Unsolvable(parts) => parts.join("\n"),
        SolveError::Cancelled => return CondaError::Stopped,
        other => other.to_string(),
    };
    let explanation: Vec<String> = text.lines().map(str::trim_end).filter(|line| !line.is_empty()).map(str::to_owned).collect();
    let mut missing_virtual: Vec<String> = Vec::new();
    for line in &explanation {
        for (at, _) in line.match_indices("__") {
            let words = &line[at..];
            let end = words.find([',', ';', '(']).unwrap_or(words.len());
            let mut parts = words[..end].split_whitespace();
            let (Some(name), version) = (parts.next(), parts.next().unwrap_or_default()) else { continue };
            let wanted = match parse(&format!("{name} {version}")) {
                Ok(spec) if version.starts_with(|c: char| c.is_ascii_digit() || "<>=!~".contains(c)) => spec,
                _ => continue,
            };
            if !machine.iter().any(|package| rattler_conda_types::Matches::matches(&wanted, package)) {
                let text = format!("{name} {version}");
                if !missing_virtual.contains(&text) {
                    missing_virtual.push(text);
                }
            }
        }
    }
    CondaError::Unsolvable { platform: platform.to_string(), explanation, missing_virtual }
}

/// A date or a timestamp as the moment after which nothing is seen.
fn cutoff(text: &str) -> Result<ExcludeNewer, CondaError> {
    let whole = if text.len() == 10 { format!("{text}T00:00:00Z") } else { text.replace(' ', "T") };
    let moment = jiff::Timestamp::from_str(&whole)
        .map_err(|error| CondaError::MatchSpec { spec: format!("exclude-newer: {text}"), reason: error.to_string() })?;
    Ok(ExcludeNewer::from_datetime(moment))
}
