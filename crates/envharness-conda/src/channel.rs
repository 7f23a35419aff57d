//! Channels: by name, by address, by folder; mirrors; what a lock calls them.

use std::collections::BTreeMap;
use std::path::Path;

use rattler_conda_types::{Channel, ChannelConfig, NamedChannelOrUrl};
use url::Url;

use crate::error::{CondaError, without_credentials};

/// The channels of a spec in order of priority, each with the name that locks record and the address that is asked.
#[derive(Debug, Clone)]
pub struct Channels {
    list: Vec<(String, Channel)>,
}

impl Channels {
    /// Reads channels. `base` is the folder that relative paths start from; `mirrors` are addresses by channel name.
    ///
    /// # Errors
    /// [`CondaError::Channel`].
    pub fn parse(texts: &[String], base: &Path, mirrors: &BTreeMap<String, String>) -> Result<Self, CondaError> {
        let mut list: Vec<(String, Channel)> = Vec::new();
        for text in texts.iter().flat_map(|text| meant(text, mirrors)) {
            let wrong = |reason: String| CondaError::Channel { channel: without_credentials(&text), reason };
            let root = if base.is_absolute() { base.to_owned() } else { std::env::current_dir().unwrap_or_default().join(base) };
            let config = ChannelConfig::default_with_root_dir(root);
            // A subdir such as `/linux-64` at the end, and a slash, say nothing more.
            let place = mirrors.get(text.as_str()).map_or(text.as_str(), String::as_str).trim_end_matches('/');
            let channel = place
                .parse::<NamedChannelOrUrl>()
                .map_err(|error| wrong(error.to_string()))
                .and_then(|named| named.into_channel(&config).map_err(|error| wrong(error.to_string())))?;
            if !list.iter().any(|(_, known)| known.base_url == channel.base_url) {
                list.push((recorded_name(&text), channel));
            }
        }
        Ok(Self { list })
    }

    /// The names that locks record.
    pub fn names(&self) -> Vec<String> {
        self.list.iter().map(|(name, _)| name.clone()).collect()
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = Channel> + '_ {
        self.list.iter().map(|(_, channel)| channel.clone())
    }

    /// What a lock calls the channel at an address.
    pub(crate) fn name_of(&self, url: &str) -> String {
        let trimmed = url.trim_end_matches('/');
        let found = self.list.iter().find(|(_, channel)| channel.base_url.as_str().trim_end_matches('/') == trimmed);
        found.map_or_else(|| recorded_name(trimmed), |(name, _)| name.clone())
    }

    /// The address of a file of a channel, `linux-64/numpy-2.0.2-py311_0.conda`.
    pub(crate) fn url(&self, channel: &str, file: &str, base: &Path, mirrors: &BTreeMap<String, String>) -> Result<(Url, Url), CondaError> {
        let known = self.list.iter().find(|(name, _)| name == channel).map(|(_, channel)| channel.clone());
        let channel_of = match known {
            Some(known) => known,
            None => Self::parse(&[channel.to_owned()], base, mirrors)?.list.remove(0).1,
        };
        let root = channel_of.base_url.url().clone();
        let joined = root.join(file).map_err(|error| CondaError::Channel { channel: channel.to_owned(), reason: error.to_string() })?;
        Ok((root.into(), joined))
    }
}

/// conda's `defaults` is no channel but a list of channels, in this order of priority; a mirror may stand for it.
fn meant(text: &str, mirrors: &BTreeMap<String, String>) -> Vec<String> {
    if text == "defaults" && !mirrors.contains_key(text) { DEFAULTS.map(str::to_owned).to_vec() } else { vec![text.to_owned()] }
}

/// What `defaults` stands for where conda's own configuration says nothing else
/// (<https://docs.conda.io/projects/conda/en/stable/user-guide/configuration/settings.html>).
const DEFAULTS: [&str; 2] = ["https://repo.anaconda.com/pkgs/main", "https://repo.anaconda.com/pkgs/r"];

/// An address without credentials; a name as it is.
fn recorded_name(text: &str) -> String {
    without_credentials(text.trim_end_matches('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str, mirrors: &[(&str, &str)]) -> Channels {
        let mirrors = mirrors.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        Channels::parse(&[text.to_owned()], Path::new("/work"), &mirrors).unwrap()
    }

    #[test]
    fn a_mirror_changes_the_address_and_not_the_name() {
        let channels = parse("conda-forge", &[("conda-forge", "https://mirror.example/cf/")]);
        assert_eq!(channels.names(), ["conda-forge"]);
        let (_, url) = channels.url("conda-forge", "noarch/x-1-0.conda", Path::new("/"), &BTreeMap::new()).unwrap();
        assert_eq!(url.as_str(), "https://mirror.example/cf/noarch/x-1-0.conda");
        assert_eq!(channels.name_of("https://mirror.example/cf"), "conda-forge");
    }

    #[test]
    fn defaults_stands_for_anaconda_s_two_channels() {
        assert_eq!(parse("defaults", &[]).names(), DEFAULTS);
        assert_eq!(parse("defaults", &[("defaults", "https://mirror.example/main")]).names(), ["defaults"]);
    }

    #[test]
    fn credentials_are_used_and_not_recorded() {
        let channels = parse("https://me:pass@host.example/c/", &[]);
        assert_eq!(channels.names(), ["https://host.example/c"]);
        assert!(channels.list[0].1.base_url.as_str().contains("pass"));
    }

    #[test]
    fn folders_are_channels() {
        assert!(parse("file:///data/channel", &[]).list[0].1.base_url.as_str().starts_with("file:///data/channel"));
        assert!(parse("./channel", &[]).list[0].1.base_url.as_str().starts_with("file:///work/channel"));
    }
}
