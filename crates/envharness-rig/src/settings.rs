//! Settings: defaults < the user's file < the project's file < environment < flags, each value with its origin.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use envharness_spec::{Backend, Compile, Index, Node, Value, nearest, parse_bytes, parse_duration, source};
use envharness_store::Home;

use crate::error::RigError;

/// Every setting: its key, its default as text, and what it means.
pub const SETTINGS: [(&str, &str, &str); 30] = [
    ("home", "", "where finished environments and all state lie (default: the user's data folder)"),
    ("cache", "", "where downloads lie (default: the user's cache folder)"),
    ("spec", "", "the folder's own spec, for commands without one"),
    ("backend", "auto", "the backend of specs that name none: auto, venv, conda, docker, podman, host"),
    ("index", "", "the default package index (default: the one of uv, PyPI)"),
    ("extra_indexes", "", "further indexes, as a list of URLs or NAME=URL"),
    ("mirrors", "", "another address for an index or a channel, as a mapping NAME: URL; never written into a lock"),
    ("find_links", "", "folders or pages with archives"),
    ("image_registry", "docker.io", "the registry of images without one"),
    ("docker_host", "", "the address of Docker (default: DOCKER_HOST, the chosen context, the usual sockets)"),
    ("podman_host", "", "the address of Podman (default: CONTAINER_HOST, the usual sockets)"),
    ("container_image", "", "the image of container specs that name none (default: python:VERSION-slim, debian:stable-slim with conda)"),
    ("channels", "conda-forge", "conda channels of specs that name none"),
    ("python_downloads", "auto", "whether a missing Python is fetched: auto or never"),
    ("offline", "false", "never use the network"),
    ("no_build", "false", "never run a package's own build code"),
    ("allow_insecure_host", "", "hosts whose certificates are not checked"),
    ("link_mode", "hardlink", "how packages come from the cache: hardlink, clone, copy, symlink"),
    ("compile", "lazy", "byte-code: lazy (behind the first create), eager, never"),
    ("verify_builds", "false", "hash every file of a new environment before it is published"),
    ("limits.cpus", "", "CPU cores of contexts whose spec says nothing"),
    ("limits.memory", "", "memory of contexts whose spec says nothing"),
    ("limits.pids", "", "processes of contexts whose spec says nothing"),
    ("max_parallel", "", "environments that are built at once by all processes of the user"),
    ("timeouts.create", "1h", "the longest time to create"),
    ("timeouts.engine", "2m", "how long a container engine may take for an answer that costs it little"),
    ("timeouts.pull", "1h", "how long a container engine may take to pull or build an image"),
    ("timeouts.idle", "24h", "how long a context may lie unused"),
    ("gc.max_age", "30d", "prefixes unused for longer go"),
    ("gc.max_size", "", "the size that prefixes may take together"),
];

/// Settings that a project's own file cannot set.
const ENGINES: [&str; 2] = ["docker_host", "podman_host"];

/// Where a value came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// Built in.
    Default,
    /// A file and the line in it.
    File(PathBuf, usize),
    /// An environment variable.
    Variable(String),
    /// A command-line flag.
    Flag(String),
}

impl std::fmt::Display for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File(path, line) => write!(f, "{}:{line}", path.display()),
            Self::Variable(name) => f.write_str(name),
            Self::Flag(name) => f.write_str(name),
        }
    }
}

/// The merged settings, typed.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Each value as text with its origin, for `config show`.
    pub values: BTreeMap<String, (String, Source)>,
    /// Indexes by priority, mirrors applied; the default one is first.
    pub indexes: Vec<Index>,
    /// The project's folder: the one that holds `envharness.yaml`, else the current one.
    pub project: PathBuf,
    /// The interpreter of the caller, when the caller is a Python.
    pub caller_python: Option<PathBuf>,
    /// Other addresses of indexes and channels, by name.
    pub mirrors: BTreeMap<String, String>,
    variables: BTreeMap<String, String>,
}

/// What the settings are read from.
#[derive(Debug, Clone, Default)]
pub struct Inputs {
    /// The current directory.
    pub cwd: PathBuf,
    /// The environment.
    pub variables: BTreeMap<String, String>,
    /// Values from flags: key, value and the flag's name.
    pub flags: Vec<(String, String, String)>,
}

impl Inputs {
    /// The process's own directory and environment.
    ///
    /// # Errors
    /// When there is no current directory.
    pub fn of_process() -> Result<Self, RigError> {
        let cwd = std::env::current_dir().map_err(|source| RigError::Io { action: "find", path: ".".into(), source })?;
        let variables = std::env::vars_os().filter_map(|(k, v)| Some((k.into_string().ok()?, v.into_string().ok()?))).collect();
        Ok(Self { cwd, variables, flags: Vec::new() })
    }
}

/// Variables that set a value; the first that is set counts. Those of uv and pip are honoured for the index.
const VARIABLES: [(&str, &[&str]); 17] = [
    ("home", &["ENVHARNESS_HOME"]),
    ("cache", &["ENVHARNESS_CACHE"]),
    ("backend", &["ENVHARNESS_BACKEND"]),
    ("index", &["ENVHARNESS_INDEX", "UV_DEFAULT_INDEX", "UV_INDEX_URL", "PIP_INDEX_URL"]),
    ("extra_indexes", &["ENVHARNESS_EXTRA_INDEXES", "UV_INDEX", "UV_EXTRA_INDEX_URL", "PIP_EXTRA_INDEX_URL"]),
    ("find_links", &["ENVHARNESS_FIND_LINKS"]),
    ("python_downloads", &["ENVHARNESS_PYTHON_DOWNLOADS"]),
    ("offline", &["ENVHARNESS_OFFLINE"]),
    ("no_build", &["ENVHARNESS_NO_BUILD"]),
    ("link_mode", &["ENVHARNESS_LINK_MODE"]),
    ("compile", &["ENVHARNESS_COMPILE"]),
    ("channels", &["ENVHARNESS_CHANNELS"]),
    ("max_parallel", &["ENVHARNESS_MAX_PARALLEL"]),
    ("timeouts.create", &["ENVHARNESS_CREATE_TIMEOUT"]),
    ("timeouts.idle", &["ENVHARNESS_IDLE_TIMEOUT"]),
    ("gc.max_age", &["ENVHARNESS_GC_MAX_AGE"]),
    ("gc.max_size", &["ENVHARNESS_GC_MAX_SIZE"]),
];

impl Settings {
    /// Merges all layers.
    ///
    /// # Errors
    /// [`RigError::Settings`] names the file and line, or the variable, of a wrong value.
    pub fn load(inputs: Inputs) -> Result<Self, RigError> {
        let mut values: BTreeMap<String, (String, Source)> =
            SETTINGS.iter().map(|(key, value, _)| ((*key).to_owned(), ((*value).to_owned(), Source::Default))).collect();
        let mut mirrors = BTreeMap::new();
        let variable = |name: &str| inputs.variables.get(name).filter(|v| !v.is_empty()).cloned();
        let home_dir = variable("HOME").map_or_else(|| PathBuf::from("/"), PathBuf::from);
        let folder = |name: &str, below: &str| variable(name).map_or_else(|| home_dir.join(below), PathBuf::from).join("envharness");
        let user_file = folder("XDG_CONFIG_HOME", ".config").join("envharness.yaml");
        let project_file = inputs
            .cwd
            .ancestors()
            .find_map(|dir| [dir.join("envharness.yaml"), dir.join(".envharness/config.json")].into_iter().find(|path| path.is_file()));
        for path in [Some(&user_file), project_file.as_ref()].into_iter().flatten() {
            let engines = ENGINES.map(|key| values.get(key).cloned());
            read_file(path, &mut values, &mut mirrors)?;
            if Some(path) == project_file.as_ref() {
                // Whoever can write a project's file must not choose where secrets are sent.
                for (key, kept) in ENGINES.iter().zip(engines) {
                    values.extend(kept.map(|kept| ((*key).to_owned(), kept)));
                }
            }
        }
        for (key, names) in VARIABLES {
            if let Some((name, value)) = names.iter().find_map(|name| variable(name).map(|value| (*name, value))) {
                values.insert(key.to_owned(), (value, Source::Variable(name.to_owned())));
            }
        }
        for (key, value, flag) in inputs.flags {
            values.insert(key, (value, Source::Flag(flag)));
        }
        for (key, default) in [("home", folder("XDG_DATA_HOME", ".local/share")), ("cache", folder("XDG_CACHE_HOME", ".cache"))] {
            if values[key].0.is_empty() {
                values.insert(key.to_owned(), (default.display().to_string(), Source::Default));
            } else if let Some(rest) = values[key].0.strip_prefix("~/") {
                let expanded = home_dir.join(rest).display().to_string();
                let source = values[key].1.clone();
                values.insert(key.to_owned(), (expanded, source));
            }
        }
        let project = project_file.as_deref().map_or(inputs.cwd.clone(), |file| {
            let parent = file.parent().unwrap_or(Path::new("/"));
            if parent.ends_with(".envharness") { parent.parent().unwrap_or(parent).to_owned() } else { parent.to_owned() }
        });
        let mut settings = Self { values, indexes: Vec::new(), project, caller_python: None, mirrors, variables: inputs.variables };
        settings.indexes = settings.read_indexes(&settings.mirrors)?;
        settings.check()?;
        Ok(settings)
    }

    /// Opens the store that the settings name.
    ///
    /// # Errors
    /// [`RigError::Store`].
    pub fn open_home(&self) -> Result<Home, RigError> {
        Ok(Home::open(Path::new(self.text("home")), Path::new(self.text("cache")))?)
    }

    /// A value as text; empty when it is not set.
    pub fn text(&self, key: &str) -> &str {
        self.values.get(key).map_or("", |(value, _)| value.as_str())
    }

    /// A variable of the environment the settings were read from.
    pub fn variable(&self, name: &str) -> Option<&str> {
        self.variables.get(name).map(String::as_str)
    }

    /// The environment the settings were read from.
    pub fn variables(&self) -> &BTreeMap<String, String> {
        &self.variables
    }

    /// A value that is true or false.
    pub fn flag(&self, key: &str) -> bool {
        matches!(self.text(key), "true" | "1" | "yes" | "on")
    }

    /// A time.
    pub fn duration(&self, key: &str) -> Option<Duration> {
        parse_duration(self.text(key))
    }

    /// A size in bytes.
    pub fn bytes(&self, key: &str) -> Option<u64> {
        parse_bytes(self.text(key))
    }

    /// A list: lines, commas or spaces between its values.
    pub fn list(&self, key: &str) -> Vec<String> {
        self.text(key).split([',', '\n', ' ']).filter(|s| !s.is_empty()).map(str::to_owned).collect()
    }

    fn wrong(&self, key: &str, message: String) -> RigError {
        let place = self.values.get(key).map_or_else(String::new, |(_, source)| format!("{source}: "));
        RigError::Settings { place: format!("{place}`{key}`"), message }
    }

    fn read_indexes(&self, mirrors: &BTreeMap<String, String>) -> Result<Vec<Index>, RigError> {
        let url = |key: &str, url: &str| {
            let known = ["https://", "http://", "file://"].iter().any(|scheme| url.starts_with(scheme));
            if known { Ok(url.to_owned()) } else { Err(self.wrong(key, format!("`{url}` is not the URL of an index"))) }
        };
        let default = self.text("index");
        let default = if default.is_empty() { String::new() } else { url("index", default)? };
        // Without an address uv's own default stands.
        let mut out = vec![Index { name: "pypi".into(), url: default, default: true }];
        for (i, entry) in self.list("extra_indexes").iter().enumerate() {
            let (name, address) = match entry.split_once('=') {
                Some((name, address)) if !name.contains(':') => (name.to_owned(), address),
                _ => (format!("extra-{}", i + 1), entry.as_str()),
            };
            out.push(Index { name, url: url("extra_indexes", address)?, default: false });
        }
        for index in &mut out {
            if let Some(mirror) = mirrors.get(&index.name) {
                index.url = url("mirrors", mirror)?;
            }
        }
        Ok(out)
    }

    fn check(&self) -> Result<(), RigError> {
        let words: [(&str, &[&str]); 4] = [
            ("backend", Backend::WORDS),
            ("compile", Compile::WORDS),
            ("python_downloads", &["auto", "never"]),
            ("link_mode", &["hardlink", "clone", "copy", "symlink"]),
        ];
        for (key, known) in words {
            if !known.contains(&self.text(key)) {
                return Err(self.wrong(key, format!("`{}` is not one of {}", self.text(key), known.join(", "))));
            }
        }
        for key in ["offline", "no_build", "verify_builds"] {
            if !["true", "false", "1", "0", "yes", "no", "on", "off"].contains(&self.text(key)) {
                return Err(self.wrong(key, format!("`{}` is neither true nor false", self.text(key))));
            }
        }
        for key in ["timeouts.create", "timeouts.idle", "gc.max_age"] {
            if !self.text(key).is_empty() && self.duration(key).is_none() {
                return Err(self.wrong(key, format!("`{}` is not a time such as 30s or 2h", self.text(key))));
            }
        }
        for key in ["limits.memory", "gc.max_size"] {
            if !self.text(key).is_empty() && self.bytes(key).is_none() {
                return Err(self.wrong(key, format!("`{}` is not a size such as 8G", self.text(key))));
            }
        }
        for key in ["limits.cpus", "limits.pids", "max_parallel"] {
            if !self.text(key).is_empty() && !self.text(key).parse::<f64>().is_ok_and(|n| n > 0.0) {
                return Err(self.wrong(key, format!("`{}` is not a number above 0", self.text(key))));
            }
        }
        Ok(())
    }
}

fn read_file(path: &Path, values: &mut BTreeMap<String, (String, Source)>, mirrors: &mut BTreeMap<String, String>) -> Result<(), RigError> {
    let text = match fs::read_to_string(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(source) => return Err(RigError::Io { action: "read", path: path.to_owned(), source }),
        Ok(text) => text,
    };
    let name = path.display().to_string();
    let root = if name.ends_with(".json") { source::parse_json(&text, &name)? } else { source::parse_yaml(&text, &name)? };
    if !matches!(root.value, Value::Map(_) | Value::Null) {
        let message = format!("a settings file is a mapping, not {}", root.value.kind());
        return Err(RigError::Settings { place: name, message });
    }
    let mut flat = Vec::new();
    flatten(&root, "", &mut flat);
    for (key, node) in flat {
        let place = || format!("{}:{}: `{key}`", path.display(), node.at.line);
        let text =
            as_text(node).ok_or_else(|| RigError::Settings { place: place(), message: format!("cannot be {}", node.value.kind()) })?;
        if let Some(name) = key.strip_prefix("mirrors.") {
            mirrors.insert(name.to_owned(), text);
        } else if let Some(value) = values.get_mut(&key) {
            *value = (text, Source::File(path.to_owned(), node.at.line));
        } else {
            let near = nearest(&key, SETTINGS.iter().map(|(key, ..)| *key));
            let hint = near.map_or_else(|| "; `envharness config show` lists all".into(), |near| format!("; did you mean `{near}`?"));
            return Err(RigError::Settings { place: place(), message: format!("unknown setting{hint}") });
        }
    }
    Ok(())
}

fn flatten<'a>(node: &'a Node, prefix: &str, out: &mut Vec<(String, &'a Node)>) {
    let Value::Map(entries) = &node.value else { return };
    for (key, value) in entries {
        // The names of indexes and channels are not ours to change.
        let word = if prefix == "mirrors." { key.text.clone() } else { key.text.replace('-', "_") };
        let path = format!("{prefix}{word}");
        match &value.value {
            Value::Map(_) => flatten(value, &format!("{path}."), out),
            Value::Null => {}
            _ => out.push((path, value)),
        }
    }
}

fn as_text(node: &Node) -> Option<String> {
    match &node.value {
        Value::List(items) => items.iter().map(Node::scalar).collect::<Option<Vec<_>>>().map(|list| list.join("\n")),
        _ => node.scalar(),
    }
}
