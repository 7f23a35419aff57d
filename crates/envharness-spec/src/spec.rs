//! The canonical spec.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use serde_json::{Map, Value as Json, json};

use crate::container::ContainerOptions;
use crate::digest::Digest;
use crate::error::SpecError;
use crate::import::{self, Files, Format};
use crate::normalize;
use crate::requirement::Requirement;
use crate::resources::{Gpu, Resources};
use crate::source::parse_json;

/// What a person asks for, in the one canonical form.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Spec {
    /// The name, `[a-z0-9_.-]{1,63}`.
    pub name: String,
    /// Free text.
    pub description: Option<String>,
    /// A version specifier (`3.9`, `>=3.9,<3.12`), or for `backend: host` a path.
    pub python: Option<String>,
    /// The way to a prefix and a context.
    pub backend: Backend,
    /// How processes are confined.
    pub isolation: Isolation,
    /// pip packages, sorted.
    pub pip: Vec<Requirement>,
    /// pip constraints: they limit versions and install nothing.
    pub constraints: Vec<Requirement>,
    /// conda packages as written, sorted.
    pub conda: Vec<String>,
    /// conda channels, in order of priority.
    pub channels: Vec<String>,
    /// How conda channels stand to each other.
    pub channel_priority: ChannelPriority,
    /// Virtual packages that are said instead of detected, by name; an empty version hides one.
    pub virtual_packages: BTreeMap<String, String>,
    /// Whether the post-link scripts of conda packages run.
    pub link_scripts: bool,
    /// The image of a container, which packages are put on.
    pub image: Option<String>,
    /// The file that the image is built by, relative to the spec; its folder is the build's context.
    pub dockerfile: Option<String>,
    /// What a container sees and how it runs.
    pub container: ContainerOptions,
    /// Package indexes beside the configured ones.
    pub indexes: Vec<Index>,
    /// Folders or pages with archives.
    pub find_links: Vec<String>,
    /// Whether source archives are never built.
    pub no_build: bool,
    /// Whether pre-releases are taken.
    pub prerelease: bool,
    /// Only files uploaded before this date (or timestamp) are seen.
    pub exclude_newer: Option<String>,
    /// Environment variables of every process.
    pub env_vars: BTreeMap<String, String>,
    /// Secrets of every process, by variable.
    pub secrets: BTreeMap<String, SecretSource>,
    /// Limits.
    pub resources: Resources,
    /// When byte-code is compiled.
    pub compile: Compile,
    /// Whether each context gets a prefix of its own that it may change.
    pub writable: bool,
    /// Whether `/tmp` is the context's own.
    pub tmp: TmpPolicy,
    /// The folder that relative paths start from; not part of the digest.
    pub base: Option<PathBuf>,
    /// The file it was read from; not part of the digest.
    pub file: Option<PathBuf>,
    /// Line of each pip requirement in the source, for messages; not part of the digest.
    pub lines: BTreeMap<String, String>,
}

/// A named package index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Index {
    /// The name that locks record.
    pub name: String,
    /// The PEP 503 address.
    pub url: String,
    /// Whether it stands in for the default index.
    pub default: bool,
}

/// Where a secret comes from when a process starts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SecretSource {
    /// The caller's environment variable of that name.
    Env(String),
    /// The output of a command.
    Command(Vec<String>),
}

/// Words that are one of a fixed set.
macro_rules! words {
    ($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident = $word:literal $(| $alias:literal)*),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
        pub enum $name { $($(#[$vdoc])* $variant),+ }

        impl $name {
            /// Every canonical word.
            pub const WORDS: &'static [&'static str] = &[$($word),+];

            /// Reads a word or one of its aliases.
            pub fn parse(word: &str) -> Option<Self> {
                match word { $($word $(| $alias)* => Some(Self::$variant),)+ _ => None }
            }

            /// The canonical word.
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $word),+ }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.as_str())
            }
        }
    };
}

words! {
    /// The way a lock becomes a prefix and a context.
    Backend {
        /// Chosen by what the spec needs.
        #[default]
        Auto = "auto",
        /// A virtual environment.
        Venv = "venv" | "virtualenv",
        /// A conda prefix.
        Conda = "conda" | "mamba",
        /// A Docker container.
        Docker = "docker",
        /// A Podman container.
        Podman = "podman",
        /// What is there, as it is.
        Host = "host" | "system",
    }
}
words! {
    /// How processes of a context are confined.
    Isolation {
        /// Not at all.
        #[default]
        None = "none",
        /// Kept from the rest of the user's files.
        Standard = "standard",
        /// As hostile code.
        Strict = "strict",
        /// By a container engine.
        Container = "container",
    }
}
words! {
    /// When the byte-code of a prefix is compiled.
    Compile {
        /// Behind the first create.
        #[default]
        Lazy = "lazy",
        /// Before the first create returns.
        Eager = "eager",
        /// Only by `envharness compile`.
        Never = "never",
    }
}
words! {
    /// What processes see at `/tmp`.
    TmpPolicy {
        /// A folder of the context.
        #[default]
        Private = "private",
        /// The host's.
        Shared = "shared",
    }
}

words! {
    /// How conda channels stand to each other.
    ChannelPriority {
        /// The first that has a package is the only one asked for it.
        #[default]
        Strict = "strict",
        /// Later ones are asked where nothing of the earlier ones fits.
        Flexible = "flexible",
        /// The newest version counts, wherever it is.
        Disabled = "disabled",
    }
}

impl Spec {
    /// Parses a spec from text; `file` names it in errors.
    ///
    /// # Errors
    /// [`SpecError`] with the place, the key and, where there is one, the nearest right key.
    pub fn parse(text: &str, format: Format, file: &str) -> Result<Self, SpecError> {
        Self::parse_with(text, format, file, &import::NoFiles)
    }

    /// Parses a spec that may include other files (`-r`, `-c`).
    ///
    /// # Errors
    /// As [`Spec::parse`].
    pub fn parse_with(text: &str, format: Format, file: &str, files: &dyn Files) -> Result<Self, SpecError> {
        import::read(text, format, file, files)
    }

    /// Reads the JSON form of a mapping, as the Python package sends it.
    ///
    /// # Errors
    /// As [`Spec::parse`].
    pub fn from_mapping(json: &str, files: &dyn Files) -> Result<Self, SpecError> {
        let mut root = parse_json(json, "<dict>")?;
        forget_positions(&mut root);
        normalize::spec_from_node(&root, "<dict>", "env", files)
    }

    /// The canonical JSON: sorted keys, defaults left out.
    pub fn canonical(&self) -> Json {
        let mut out = self.resolution_inputs();
        let mut put = |key: &str, value: Json| {
            out.insert(key.to_owned(), value);
        };
        put("name", json!(self.name));
        if let Some(description) = &self.description {
            put("description", json!(description));
        }
        if self.isolation != Isolation::None {
            put("isolation", json!(self.isolation.as_str()));
        }
        if !self.env_vars.is_empty() {
            put("env_vars", json!(self.env_vars));
        }
        if !self.secrets.is_empty() {
            put("secrets", secrets_json(&self.secrets));
        }
        let resources = resources_json(&self.resources);
        if !resources.is_empty() {
            put("resources", Json::Object(resources));
        }
        if self.compile != Compile::Lazy {
            put("compile", json!(self.compile.as_str()));
        }
        if self.writable {
            put("writable", json!(true));
        }
        if self.tmp != TmpPolicy::Private {
            put("tmp", json!(self.tmp.as_str()));
        }
        self.container.put(&mut put);
        sorted(out)
    }

    /// What a resolution depends on; a lock stays good while this is the same.
    pub fn resolution_inputs(&self) -> Map<String, Json> {
        let mut out = Map::new();
        let texts = |list: &[Requirement]| list.iter().map(ToString::to_string).collect::<Vec<_>>();
        if self.backend != Backend::Auto {
            out.insert("backend".into(), json!(self.backend.as_str()));
        }
        if let Some(python) = &self.python {
            out.insert("python".into(), json!(python));
        }
        let mut dependencies = Map::new();
        let mut list = |key: &str, values: Vec<String>| {
            if !values.is_empty() {
                dependencies.insert(key.to_owned(), json!(values));
            }
        };
        list("pip", texts(&self.pip));
        list("constraints", texts(&self.constraints));
        list("conda", self.conda.clone());
        list("channels", self.channels.clone());
        if !dependencies.is_empty() {
            out.insert("dependencies".into(), Json::Object(dependencies));
        }
        if self.channel_priority != ChannelPriority::Strict {
            out.insert("channel_priority".into(), json!(self.channel_priority.as_str()));
        }
        if !self.virtual_packages.is_empty() {
            out.insert("virtual_packages".into(), json!(self.virtual_packages));
        }
        if self.link_scripts {
            out.insert("link_scripts".into(), json!(true));
        }
        if let Some(image) = &self.image {
            out.insert("image".into(), json!(image));
        }
        if let Some(dockerfile) = &self.dockerfile {
            out.insert("dockerfile".into(), json!(dockerfile));
        }
        if !self.indexes.is_empty() {
            let indexes: Vec<Json> = self
                .indexes
                .iter()
                .map(|i| {
                    let mut entry = Map::from_iter([("name".into(), json!(i.name)), ("url".into(), json!(i.url))]);
                    if i.default {
                        entry.insert("default".into(), json!(true));
                    }
                    Json::Object(entry)
                })
                .collect();
            out.insert("indexes".into(), Json::Array(indexes));
        }
        if !self.find_links.is_empty() {
            out.insert("find_links".into(), json!(self.find_links));
        }
        if self.no_build {
            out.insert("no_build".into(), json!(true));
        }
        if self.prerelease {
            out.insert("prerelease".into(), json!(true));
        }
        if let Some(date) = &self.exclude_newer {
            out.insert("exclude_newer".into(), json!(date));
        }
        out
    }

    /// The digest of the whole spec, name, description and limits included.
    pub fn digest(&self) -> Digest {
        Digest::of(format!("envharness-spec-1\n{}", self.canonical()))
    }

    /// The digest of what a resolution depends on.
    pub fn resolution_digest(&self) -> Digest {
        Digest::of(format!("envharness-inputs-1\n{}", sorted(self.resolution_inputs())))
    }

    /// The spec as YAML in the file form; reading it gives the same digest.
    pub fn to_yaml(&self) -> String {
        crate::write::yaml(&self.canonical())
    }

    /// The backend that does the work: `auto` becomes `docker`, `conda` or `venv` by what is asked.
    pub fn chosen_backend(&self) -> Backend {
        match self.backend {
            Backend::Auto if self.image.is_some() || self.dockerfile.is_some() => Backend::Docker,
            Backend::Auto if !self.conda.is_empty() => Backend::Conda,
            Backend::Auto => Backend::Venv,
            chosen => chosen,
        }
    }

    /// Whether its processes run in a container.
    pub fn is_container(&self) -> bool {
        matches!(self.chosen_backend(), Backend::Docker | Backend::Podman)
    }

    /// The place of a requirement, `task_spec.yaml:7`, where it is known.
    pub fn place_of(&self, requirement: &Requirement) -> Option<&str> {
        self.lines.get(&requirement.to_string()).map(String::as_str)
    }

    /// Names of the pip packages asked for.
    pub fn direct_names(&self) -> BTreeSet<&str> {
        self.pip.iter().filter_map(|r| r.name.as_deref()).collect()
    }
}

/// An object with its keys in order at every depth: another crate of a build may have JSON maps keep the order of
/// insertion, and a digest must not hang on that.
fn sorted(map: Map<String, Json>) -> Json {
    let mut value = Json::Object(map);
    value.sort_all_objects();
    value
}

fn forget_positions(node: &mut crate::source::Node) {
    node.at = crate::source::Position::default();
    match &mut node.value {
        crate::source::Value::List(items) => items.iter_mut().for_each(forget_positions),
        crate::source::Value::Map(entries) => entries.iter_mut().for_each(|(key, node)| {
            key.at = crate::source::Position::default();
            forget_positions(node);
        }),
        _ => {}
    }
}

fn secrets_json(secrets: &BTreeMap<String, SecretSource>) -> Json {
    let entry = |(name, source): (&String, &SecretSource)| match source {
        SecretSource::Env(variable) => (name.clone(), json!({ "env": variable })),
        SecretSource::Command(command) => (name.clone(), json!({ "command": command })),
    };
    Json::Object(secrets.iter().map(entry).collect())
}

fn resources_json(resources: &Resources) -> Map<String, Json> {
    let mut out = Map::new();
    let mut put = |key: &str, value: Option<Json>| {
        if let Some(value) = value {
            out.insert(key.to_owned(), value);
        }
    };
    put("cpus", resources.cpus.map(|v| json!(v)));
    put("memory", resources.memory.map(|v| json!(crate::resources::format_bytes(v))));
    put("pids", resources.pids.map(|v| json!(v)));
    put("disk", resources.disk.map(|v| json!(crate::resources::format_bytes(v))));
    put(
        "gpu",
        resources.gpu.map(|gpu| match gpu {
            Gpu::None => json!(false),
            Gpu::Any => json!(true),
            Gpu::Count(count) => json!(count),
        }),
    );
    let mut timeouts = Map::new();
    for (key, value) in [
        ("create", resources.timeouts.create),
        ("run", resources.timeouts.run),
        ("no_output", resources.timeouts.no_output),
        ("idle", resources.timeouts.idle),
    ] {
        if let Some(value) = value {
            timeouts.insert(key.to_owned(), json!(value.as_secs_f64()));
        }
    }
    if !timeouts.is_empty() {
        out.insert("timeouts".to_owned(), Json::Object(timeouts));
    }
    out
}
