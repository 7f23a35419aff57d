//! From a tree in any accepted shape to the canonical [`Spec`].

mod container;

use std::collections::BTreeMap;
use std::str::FromStr;

use pep440_rs::{Version, VersionSpecifiers};

use crate::error::SpecError;
use crate::import::{Files, requirements_txt};
use crate::requirement::{Requirement, refuse_credentials};
use crate::resources::{Gpu, Resources, Timeouts, parse_bytes, parse_duration};
use crate::source::{Key, Node, Value};
use crate::spec::{Backend, ChannelPriority, Compile, Index, Isolation, SecretSource, Spec, TmpPolicy};
use crate::suggest::nearest;

/// Keys of a spec, at the top or inside `environment`.
const KEYS: [&str; 29] = [
    "name",
    "description",
    "environment",
    "python",
    "backend",
    "isolation",
    "dependencies",
    "deps",
    "pip_deps",
    "pip",
    "conda_deps",
    "conda",
    "channels",
    "conda_channels",
    "constraints",
    "image",
    "env_vars",
    "secrets",
    "resources",
    "timeouts",
    "indexes",
    "index_url",
    "extra_index_urls",
    "find_links",
    "no_build",
    "prerelease",
    "exclude_newer",
    "compile",
    "writable",
];
const MORE_KEYS: [&str; 9] =
    ["tmp", "channel_priority", "virtual_packages", "link_scripts", "base", "dockerfile", "network", "runtime", "mounts"];
const DEPENDENCY_KEYS: [&str; 5] = ["pip", "conda", "channels", "conda_channels", "constraints"];
const RESOURCE_KEYS: [&str; 6] = ["cpus", "memory", "pids", "disk", "gpu", "timeouts"];
const TIMEOUT_KEYS: [&str; 4] = ["create", "run", "no_output", "idle"];

pub(crate) fn known_keys() -> impl Iterator<Item = &'static str> {
    KEYS.into_iter().chain(MORE_KEYS)
}

/// Normalises a tree.
pub(crate) fn spec_from_node(root: &Node, file: &str, default_name: &str, files: &dyn Files) -> Result<Spec, SpecError> {
    let reader = Reader { file, files };
    let entries = reader.flatten(root)?;
    if entries.is_empty() {
        return Err(SpecError::new(file, "the spec is empty").at(root.at, "").hint("a spec needs a name and dependencies"));
    }
    let mut spec = Spec { name: reader.name(default_name, root.at, "name")?, ..Spec::default() };
    for entry in &entries {
        reader.apply(&mut spec, entry)?;
    }
    finish(&mut spec, file)?;
    Ok(spec)
}

/// More requirements than any environment has; a longer list is a mistake or an attack.
const MOST_REQUIREMENTS: usize = 20_000;

/// Sorts, removes what `-r` files repeat, and refuses what collides.
pub(crate) fn finish(spec: &mut Spec, file: &str) -> Result<(), SpecError> {
    if spec.pip.len() > MOST_REQUIREMENTS {
        let message = format!("{} requirements are more than a spec may have ({MOST_REQUIREMENTS})", spec.pip.len());
        return Err(SpecError::new(file, message));
    }
    let mut kept: BTreeMap<Option<String>, Vec<Requirement>> = BTreeMap::new();
    for requirement in std::mem::take(&mut spec.pip) {
        let kept = kept.entry(requirement.name.clone()).or_default();
        for other in kept.iter() {
            if requirement.collides_with(other) {
                let place = |r: &Requirement| spec.lines.get(&r.to_string()).map(|l| format!(" ({l})")).unwrap_or_default();
                let message = format!("`{requirement}`{} collides with `{other}`{}", place(&requirement), place(other));
                let error = SpecError { key: "dependencies.pip".into(), ..SpecError::new(file, message) };
                return Err(error.hint("no version satisfies both; keep one of the two"));
            }
        }
        if !kept.iter().any(|other| other.repeats(&requirement)) {
            kept.push(requirement);
        }
    }
    spec.pip = kept.into_values().flatten().collect();
    spec.pip.sort();
    spec.constraints.sort();
    spec.constraints.dedup();
    spec.conda.sort();
    Ok(())
}

/// One key of the spec with its full path.
struct Entry<'a> {
    word: String,
    path: String,
    key: &'a Key,
    node: &'a Node,
}

struct Reader<'a> {
    file: &'a str,
    files: &'a dyn Files,
}

impl Reader<'_> {
    fn error(&self, node: &Node, path: &str, message: impl Into<String>) -> SpecError {
        SpecError::new(self.file, message).at(node.at, path)
    }

    fn wrong_type(&self, node: &Node, path: &str, wanted: &str) -> SpecError {
        self.error(node, path, format!("wants {wanted}, not {}", node.value.kind()))
    }

    fn unknown(&self, key: &Key, path: &str, known: &[&str]) -> SpecError {
        let error = SpecError::new(self.file, "unknown key").at(key.at, path);
        match nearest(&key.text, known.iter().copied()) {
            Some(near) => error.hint(format!("did you mean `{near}`?")),
            None => error.hint(format!("known keys: {}", known.join(", "))),
        }
    }

    fn map<'n>(&self, node: &'n Node, path: &str) -> Result<&'n [(Key, Node)], SpecError> {
        match &node.value {
            Value::Map(entries) => Ok(entries),
            Value::Null => Ok(&[]),
            _ => Err(self.wrong_type(node, path, "a mapping")),
        }
    }

    fn text(&self, node: &Node, path: &str) -> Result<String, SpecError> {
        match &node.value {
            Value::String(text) => Ok(text.clone()),
            _ => Err(self.wrong_type(node, path, "a string")),
        }
    }

    fn flag(&self, node: &Node, path: &str) -> Result<bool, SpecError> {
        match &node.value {
            Value::Bool(value) => Ok(*value),
            _ => Err(self.wrong_type(node, path, "true or false")),
        }
    }

    /// A list of strings; one string stands for a list of one.
    fn texts<'n>(&self, node: &'n Node, path: &str) -> Result<Vec<(String, &'n Node)>, SpecError> {
        match &node.value {
            Value::Null => Ok(Vec::new()),
            Value::String(text) => Ok(vec![(text.clone(), node)]),
            Value::List(items) => {
                items.iter().enumerate().map(|(i, item)| self.text(item, &format!("{path}[{i}]")).map(|text| (text, item))).collect()
            }
            _ => Err(self.wrong_type(node, path, "a list of strings")),
        }
    }

    fn word<T: Copy>(&self, entry: &Entry<'_>, parse: fn(&str) -> Option<T>, words: &[&str]) -> Result<T, SpecError> {
        let text = self.text(entry.node, &entry.path)?;
        parse(&text).ok_or_else(|| {
            let error = self.error(entry.node, &entry.path, format!("`{text}` is not one of {}", words.join(", ")));
            match nearest(&text, words.iter().copied()) {
                Some(near) => error.hint(format!("did you mean `{near}`?")),
                None => error,
            }
        })
    }

    /// Brings `environment: {...}` and the top level together, refusing a key that stands in both.
    fn flatten<'n>(&self, root: &'n Node) -> Result<Vec<Entry<'n>>, SpecError> {
        let all: Vec<&str> = known_keys().collect();
        let mut entries: Vec<Entry<'n>> = Vec::new();
        let mut add = |key: &'n Key, node: &'n Node, parent: &str| {
            let word = key.text.replace('-', "_");
            let path = format!("{parent}{}", key.text);
            if !all.contains(&word.as_str()) || (word == "environment" && !parent.is_empty()) {
                return Err(self.unknown(key, &path, &all));
            }
            if let Some(first) = entries.iter().find(|entry: &&Entry<'_>| entry.word == word) {
                return Err(SpecError::new(self.file, format!("stands as `{}` too", first.path))
                    .at(key.at, &path)
                    .hint("keep one of the two"));
            }
            entries.push(Entry { word, path, key, node });
            Ok(())
        };
        match &root.value {
            Value::Map(map) => {
                for (key, node) in map {
                    if key.text == "environment" {
                        for (key, node) in self.map(node, "environment")? {
                            add(key, node, "environment.")?;
                        }
                    } else {
                        add(key, node, "")?;
                    }
                }
            }
            Value::Null => {}
            _ => return Err(self.wrong_type(root, "", "a mapping")),
        }
        Ok(entries)
    }

    fn apply(&self, spec: &mut Spec, entry: &Entry<'_>) -> Result<(), SpecError> {
        let (node, path) = (entry.node, entry.path.as_str());
        if matches!(node.value, Value::Null) && entry.word != "dependencies" {
            return Ok(());
        }
        match entry.word.as_str() {
            "name" => spec.name = self.name(&self.text(node, path)?, node.at, path)?,
            "description" => spec.description = Some(self.text(node, path)?),
            "python" => spec.python = Some(self.python(node, path)?),
            "backend" => spec.backend = self.word(entry, Backend::parse, Backend::WORDS)?,
            "isolation" => spec.isolation = self.word(entry, Isolation::parse, Isolation::WORDS)?,
            "compile" => spec.compile = self.word(entry, Compile::parse, Compile::WORDS)?,
            "tmp" => spec.tmp = self.word(entry, TmpPolicy::parse, TmpPolicy::WORDS)?,
            "dependencies" => self.dependencies(spec, node, path)?,
            "deps" | "pip_deps" | "pip" => self.pip(spec, node, path)?,
            "conda_deps" | "conda" => self.conda(spec, node, path)?,
            "channels" | "conda_channels" => spec.channels.extend(self.places(node, path)?),
            "constraints" => {
                for (text, item) in self.texts(node, path)? {
                    spec.constraints.push(self.requirement(&text, item, path)?);
                }
            }
            "channel_priority" => spec.channel_priority = self.word(entry, ChannelPriority::parse, ChannelPriority::WORDS)?,
            "virtual_packages" => spec.virtual_packages = self.virtual_packages(node, path)?,
            "link_scripts" => spec.link_scripts = self.flag(node, path)?,
            "image" | "base" => self.image(spec, node, path)?,
            "dockerfile" => spec.dockerfile = Some(self.text(node, path)?),
            "network" => spec.container.network = Some(self.word_of_engine(node, path, "a network")?),
            "runtime" => spec.container.runtime = Some(self.word_of_engine(node, path, "a runtime")?),
            "mounts" => self.mounts(&mut spec.container, node, path)?,
            "env_vars" => spec.env_vars = self.env_vars(node, path)?,
            "secrets" => spec.secrets = self.secrets(node, path)?,
            "resources" => self.resources(&mut spec.resources, node, path)?,
            "timeouts" => self.timeouts(&mut spec.resources.timeouts, node, path)?,
            "indexes" => self.indexes(spec, node, path)?,
            "index_url" => {
                let url = self.url(&self.text(node, path)?, node, path)?;
                spec.indexes.push(Index { name: "default".into(), url, default: true });
            }
            "extra_index_urls" => {
                for (i, (text, item)) in self.texts(node, path)?.into_iter().enumerate() {
                    let url = self.url(&text, item, path)?;
                    spec.indexes.push(Index { name: format!("extra-{}", i + 1), url, default: false });
                }
            }
            "find_links" => spec.find_links.extend(self.places(node, path)?),
            "no_build" => spec.no_build = self.flag(node, path)?,
            "prerelease" => spec.prerelease = self.flag(node, path)?,
            "writable" => spec.writable = self.flag(node, path)?,
            "exclude_newer" => spec.exclude_newer = Some(self.date(node, path)?),
            _ => return Err(self.unknown(entry.key, path, &known_keys().collect::<Vec<_>>())),
        }
        Ok(())
    }

    fn name(&self, text: &str, at: crate::source::Position, path: &str) -> Result<String, SpecError> {
        let name: String = text.trim().to_lowercase().chars().map(|c| if c.is_whitespace() { '-' } else { c }).collect();
        let valid = (1..=63).contains(&name.len())
            && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"_.-".contains(&b))
            && !name.bytes().all(|b| b == b'.');
        if valid {
            return Ok(name);
        }
        let error = SpecError::new(self.file, format!("`{text}` is not a name")).at(at, path);
        Err(error.hint("a name has 1 to 63 letters, digits, `_`, `.` and `-`"))
    }

    fn python(&self, node: &Node, path: &str) -> Result<String, SpecError> {
        let Some(text) = node.scalar().filter(|_| !matches!(node.value, Value::Bool(_))) else {
            return Err(self.wrong_type(node, path, "a version such as \"3.11\""));
        };
        let text = text.trim().to_owned();
        if text.contains('/') || text.starts_with(['.', '~']) {
            return Ok(text);
        }
        let number = matches!(node.value, Value::Number(_));
        let wrong = |message: String| {
            let error = self.error(node, path, message);
            if number {
                error.hint("quote it: a number such as 3.10 may have lost its zero")
            } else {
                error.hint("write \"3.11\", \"3.11.7\" or \">=3.9,<3.12\"")
            }
        };
        if let Ok(version) = Version::from_str(&text) {
            let release = version.release();
            let (major, minor) = (release.first().copied().unwrap_or(0), release.get(1).copied());
            if major != 3 || minor.is_some_and(|minor| minor < 8) {
                return Err(wrong(format!("Python {text} is not supported: 3.8 and newer are")));
            }
            return Ok(text);
        }
        match VersionSpecifiers::from_str(&text) {
            Ok(set) if !set.is_empty() => {
                let mut list: Vec<String> = set.iter().map(ToString::to_string).collect();
                list.sort();
                Ok(list.join(","))
            }
            _ => Err(wrong(format!("`{text}` is not a Python version"))),
        }
    }

    fn date(&self, node: &Node, path: &str) -> Result<String, SpecError> {
        let text = self.text(node, path)?;
        let digits = |s: &str| !s.is_empty() && s.bytes().all(|b| b.is_ascii_digit());
        let (day, time) = text.split_once(['T', ' ']).map_or((text.as_str(), None), |(d, t)| (d, Some(t)));
        let parts: Vec<&str> = day.split('-').collect();
        let number = |i: usize| parts.get(i).and_then(|p| p.parse::<u32>().ok()).unwrap_or(0);
        let valid = parts.len() == 3
            && parts.iter().all(|p| digits(p))
            && parts[0].len() == 4
            && (1..=12).contains(&number(1))
            && (1..=31).contains(&number(2))
            && time.is_none_or(|t| t.len() >= 8 && t.contains(':'));
        if valid {
            return Ok(text);
        }
        Err(self.error(node, path, format!("`{text}` is not a date")).hint("write 2023-09-01 or 2023-09-01T00:00:00Z"))
    }

    fn dependencies(&self, spec: &mut Spec, node: &Node, path: &str) -> Result<(), SpecError> {
        match &node.value {
            Value::Map(entries) => {
                for (key, value) in entries {
                    let path = format!("{path}.{}", key.text);
                    match key.text.replace('-', "_").as_str() {
                        "pip" => self.pip(spec, value, &path)?,
                        "conda" => self.conda(spec, value, &path)?,
                        "channels" | "conda_channels" => spec.channels.extend(self.places(value, &path)?),
                        "constraints" => {
                            for (text, item) in self.texts(value, &path)? {
                                spec.constraints.push(self.requirement(&text, item, &path)?);
                            }
                        }
                        _ => return Err(self.unknown(key, &path, &DEPENDENCY_KEYS)),
                    }
                }
                Ok(())
            }
            Value::List(_) => self.pip(spec, node, path),
            Value::Null => Ok(()),
            _ => Err(self.wrong_type(node, path, "a mapping with `pip` and `conda`, or a list")),
        }
    }

    fn requirement(&self, text: &str, node: &Node, path: &str) -> Result<Requirement, SpecError> {
        Requirement::parse(text).map_err(|(message, hint)| {
            let error = self.error(node, path, message);
            match hint {
                Some(hint) => error.hint(hint),
                None => error,
            }
        })
    }

    fn pip(&self, spec: &mut Spec, node: &Node, path: &str) -> Result<(), SpecError> {
        for (i, (text, item)) in self.texts(node, path)?.into_iter().enumerate() {
            let path = format!("{path}[{i}]");
            if text.starts_with('-') && !text.starts_with("-e ") && !text.starts_with("--editable ") {
                requirements_txt::option_line(spec, &text, self.file, item.at, self.files)?;
                continue;
            }
            let requirement = self.requirement(&text, item, &path)?;
            let same = |other: &&Requirement| other.name == requirement.name && other.repeats(&requirement);
            if let Some(first) = spec.pip.iter().find(same) {
                let error = self.error(item, &path, format!("`{first}` stands twice"));
                return Err(error.hint("keep one of the two"));
            }
            if let Some(at) = item.at.known() {
                spec.lines.insert(requirement.to_string(), format!("{}:{}", self.file, at.line));
            }
            spec.pip.push(requirement);
        }
        Ok(())
    }

    fn conda(&self, spec: &mut Spec, node: &Node, path: &str) -> Result<(), SpecError> {
        for (i, (text, item)) in self.texts(node, path)?.into_iter().enumerate() {
            let path = format!("{path}[{i}]");
            let text = text.trim().to_owned();
            let name: String = conda_name(&text).to_owned();
            if name.is_empty() {
                return Err(self.error(item, &path, format!("`{text}` is not a conda package")).hint("write `cudatoolkit=11.8`"));
            }
            if let Some(other) = spec.conda.iter().find(|other| conda_name(other) == name) {
                return Err(self.error(item, &path, format!("`{text}` repeats `{other}`")).hint("keep one of the two"));
            }
            spec.conda.push(text);
        }
        Ok(())
    }

    /// `{__cuda: "12.4"}`; a list of `__cuda=12.4` is read too.
    fn virtual_packages(&self, node: &Node, path: &str) -> Result<BTreeMap<String, String>, SpecError> {
        let mut out = BTreeMap::new();
        let mut add = |name: &str, version: &str, node: &Node, path: &str| {
            let letters = |text: &str| text.bytes().all(|b| b.is_ascii_alphanumeric() || b"_.-+!=".contains(&b));
            if !name.starts_with("__") || name.len() < 3 || !letters(name) || !letters(version) {
                let error = self.error(node, path, format!("`{name}` is not a virtual package"));
                return Err(error.hint("write `virtual_packages: {__cuda: \"12.4\"}`; an empty version hides one"));
            }
            out.insert(name.to_owned(), version.to_owned());
            Ok(())
        };
        if let Value::Map(entries) = &node.value {
            for (key, value) in entries {
                let path = format!("{path}.{}", key.text);
                let version = if matches!(value.value, Value::Null) { Some(String::new()) } else { value.scalar() };
                let version = version.ok_or_else(|| self.wrong_type(value, &path, "a version such as \"12.4\""))?;
                add(&key.text, version.trim(), value, &path)?;
            }
        } else {
            for (text, item) in self.texts(node, path)? {
                let (name, version) = text.split_once('=').unwrap_or((&text, ""));
                add(name.trim(), version.trim_start_matches('=').trim(), item, path)?;
            }
        }
        Ok(out)
    }

    /// Names, paths or URLs without credentials.
    fn places(&self, node: &Node, path: &str) -> Result<Vec<String>, SpecError> {
        let mut out = Vec::new();
        for (text, item) in self.texts(node, path)? {
            refuse_credentials(&text).map_err(|(message, hint)| self.error(item, path, message).hint(hint.unwrap_or_default()))?;
            out.push(text);
        }
        Ok(out)
    }

    fn plain_list(&self, node: &Node, path: &str) -> Result<Vec<String>, SpecError> {
        Ok(self.texts(node, path)?.into_iter().map(|(text, _)| text).collect())
    }

    fn env_vars(&self, node: &Node, path: &str) -> Result<BTreeMap<String, String>, SpecError> {
        let mut out = BTreeMap::new();
        for (key, value) in self.map(node, path)? {
            let path = format!("{path}.{}", key.text);
            let text = value.scalar().ok_or_else(|| self.wrong_type(value, &path, "a string"))?;
            if !is_variable(&key.text) || text.contains('\0') {
                let error = SpecError::new(self.file, "not a valid environment variable").at(key.at, &path);
                return Err(error.hint("names have letters, digits and `_`, and no value holds a NUL"));
            }
            out.insert(key.text.clone(), text);
        }
        Ok(out)
    }

    fn secrets(&self, node: &Node, path: &str) -> Result<BTreeMap<String, SecretSource>, SpecError> {
        let mut out = BTreeMap::new();
        let mut add = |name: &str, source, node: &Node| {
            if !is_variable(name) {
                let error = self.error(node, path, format!("`{name}` is not a variable's name"));
                return Err(error.hint("name the variable, never the value: `secrets: [WANDB_API_KEY]`"));
            }
            out.insert(name.to_owned(), source);
            Ok(())
        };
        match &node.value {
            Value::Map(entries) => {
                for (key, value) in entries {
                    let path = format!("{path}.{}", key.text);
                    let source = match (value.get("env"), value.get("command"), &value.value) {
                        (Some(env), None, _) => SecretSource::Env(self.text(env, &path)?),
                        (None, Some(command), _) => SecretSource::Command(self.plain_list(command, &path)?),
                        (None, None, Value::Null) => SecretSource::Env(key.text.clone()),
                        _ => {
                            let error = self.wrong_type(value, &path, "`env: NAME` or `command: [..]`");
                            return Err(error.hint("a spec holds no secret itself"));
                        }
                    };
                    add(&key.text, source, value)?;
                }
            }
            _ => {
                for (name, item) in self.texts(node, path)? {
                    add(&name, SecretSource::Env(name.clone()), item)?;
                }
            }
        }
        Ok(out)
    }

    fn resources(&self, out: &mut Resources, node: &Node, path: &str) -> Result<(), SpecError> {
        for (key, value) in self.map(node, path)? {
            let path = format!("{path}.{}", key.text);
            let amount = || value.scalar().filter(|_| !matches!(value.value, Value::Bool(_))).unwrap_or_default();
            let count = || amount().parse::<u64>().ok().filter(|n| *n > 0);
            match key.text.replace('-', "_").as_str() {
                "cpus" | "cpu" => {
                    let cpus = amount().parse::<f64>().ok().filter(|n| n.is_finite() && *n > 0.0);
                    out.cpus = Some(cpus.ok_or_else(|| self.error(value, &path, "wants a number of cores above 0"))?);
                }
                word @ ("memory" | "disk") => {
                    let bytes = parse_bytes(&amount()).filter(|n| *n > 0);
                    let bytes = bytes.ok_or_else(|| self.error(value, &path, "wants a size such as 8G"))?;
                    *(if word == "memory" { &mut out.memory } else { &mut out.disk }) = Some(bytes);
                }
                "pids" => out.pids = Some(count().ok_or_else(|| self.error(value, &path, "wants a count above 0"))?),
                "gpu" | "gpus" => {
                    out.gpu = Some(match &value.value {
                        Value::Bool(true) => Gpu::Any,
                        Value::Bool(false) => Gpu::None,
                        Value::Number(text) => match text.parse::<u32>() {
                            Ok(0) => Gpu::None,
                            Ok(n) => Gpu::Count(n),
                            Err(_) => return Err(self.error(value, &path, "wants true, false or a count")),
                        },
                        _ => return Err(self.wrong_type(value, &path, "true, false or a count")),
                    });
                }
                "timeouts" => self.timeouts(&mut out.timeouts, value, &path)?,
                _ => return Err(self.unknown(key, &path, &RESOURCE_KEYS)),
            }
        }
        Ok(())
    }

    fn timeouts(&self, out: &mut Timeouts, node: &Node, path: &str) -> Result<(), SpecError> {
        for (key, value) in self.map(node, path)? {
            let path = format!("{path}.{}", key.text);
            let slot = match key.text.replace('-', "_").as_str() {
                "create" => &mut out.create,
                "run" => &mut out.run,
                "no_output" => &mut out.no_output,
                "idle" => &mut out.idle,
                _ => return Err(self.unknown(key, &path, &TIMEOUT_KEYS)),
            };
            let text = value.scalar().unwrap_or_default();
            *slot = Some(parse_duration(&text).ok_or_else(|| self.error(value, &path, "wants a time such as 30s or 2h"))?);
        }
        Ok(())
    }

    fn indexes(&self, spec: &mut Spec, node: &Node, path: &str) -> Result<(), SpecError> {
        let Value::List(items) = &node.value else { return Err(self.wrong_type(node, path, "a list")) };
        for (i, item) in items.iter().enumerate() {
            let path = format!("{path}[{i}]");
            let index = match &item.value {
                Value::String(url) => Index { name: format!("index-{}", i + 1), url: url.clone(), default: false },
                Value::Map(entries) => {
                    let mut index = Index { name: String::new(), url: String::new(), default: false };
                    for (key, value) in entries {
                        match key.text.as_str() {
                            "name" => index.name = self.text(value, &path)?,
                            "url" => index.url = self.text(value, &path)?,
                            "default" => index.default = self.flag(value, &path)?,
                            _ => return Err(self.unknown(key, &path, &["name", "url", "default"])),
                        }
                    }
                    index
                }
                _ => return Err(self.wrong_type(item, &path, "a URL or a mapping with `name` and `url`")),
            };
            self.url(&index.url, item, &path)?;
            if index.name.is_empty() || spec.indexes.iter().any(|other| other.name == index.name) {
                return Err(self.error(item, &path, "an index needs a name of its own"));
            }
            spec.indexes.push(index);
        }
        Ok(())
    }

    fn url(&self, text: &str, node: &Node, path: &str) -> Result<String, SpecError> {
        if !["https://", "http://", "file://"].iter().any(|scheme| text.starts_with(scheme)) {
            return Err(self.error(node, path, format!("`{text}` is not a URL")).hint("an index begins with https://"));
        }
        refuse_credentials(text).map_err(|(message, hint)| self.error(node, path, message).hint(hint.unwrap_or_default()))?;
        Ok(text.to_owned())
    }
}

fn conda_name(text: &str) -> &str {
    let text = text.rsplit("::").next().unwrap_or(text);
    text.split(['=', '<', '>', '!', '~', ' ', '[']).next().unwrap_or("").trim()
}

fn is_variable(name: &str) -> bool {
    !name.is_empty() && !name.starts_with(|c: char| c.is_ascii_digit()) && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
}
