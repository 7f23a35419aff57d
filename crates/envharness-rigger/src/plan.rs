//! What is to be rigged, each part with its reason; and how a plan becomes a spec.

use std::collections::BTreeMap;

use envharness_spec::{Requirement, Spec};
use serde::{Deserialize, Serialize};

/// Something decided, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Reasoned<T> {
    /// What.
    pub value: T,
    /// Why.
    pub reason: String,
}

/// Where a package came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Origin {
    /// The task declares it.
    Declared,
    /// The shipped table of modules.
    Table,
    /// The caller's own environment has it.
    Installed,
    /// It has the name of the module: proved by its wheel after it was installed, and taken from a wheel alone.
    OwnName,
    /// A rule mended something.
    Rule,
    /// An advisor proposed it.
    Advisor,
}

/// A package of a plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Wanted {
    /// The requirement.
    #[serde(serialize_with = "as_text")]
    pub requirement: Requirement,
    /// Why.
    pub reason: String,
    /// Where from.
    pub origin: Origin,
    /// The module it is to provide.
    pub module: Option<String>,
}

fn as_text<S: serde::Serializer>(requirement: &Requirement, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(requirement)
}

/// A change of a plan: what rules and advisors propose.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Change {
    /// A package is wanted too; bounds are added to those of the same package.
    Add(String),
    /// The bounds of a package are replaced, or it is limited where only others ask for it.
    Limit(String),
    /// A package is no longer asked for.
    Remove(String),
    /// Another Python.
    Python(String),
    /// Only files uploaded before the day are seen; none lets go of the day.
    ExcludeNewer(Option<String>),
    /// Only wheels, or source archives too.
    NoBuild(bool),
    /// A variable of every process.
    Env(String, String),
    /// The limit of memory, such as `8G`; none lets go of it.
    Memory(Option<String>),
    /// GPUs are hidden (`false`) or not limited.
    Gpu(bool),
}

impl std::fmt::Display for Change {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Add(requirement) => write!(f, "add {requirement}"),
            Self::Limit(requirement) => write!(f, "take {requirement}"),
            Self::Remove(name) => write!(f, "leave {name} out"),
            Self::Python(version) => write!(f, "use Python {version}"),
            Self::ExcludeNewer(Some(day)) => write!(f, "take what was there on {day}"),
            Self::ExcludeNewer(None) => f.write_str("take versions of today"),
            Self::NoBuild(true) => f.write_str("take wheels only"),
            Self::NoBuild(false) => f.write_str("allow source builds"),
            Self::Env(name, value) => write!(f, "set {name}={value}"),
            Self::Memory(Some(size)) => write!(f, "allow {size} of memory"),
            Self::Memory(None) => f.write_str("let go of the memory limit"),
            Self::Gpu(false) => f.write_str("hide GPUs"),
            Self::Gpu(true) => f.write_str("show GPUs"),
        }
    }
}

/// What is to be rigged.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Plan {
    /// The spec's name.
    pub name: String,
    /// What the spec is about.
    pub description: String,
    /// The Python.
    pub python: Option<Reasoned<String>>,
    /// Packages by normalised name.
    pub packages: BTreeMap<String, Wanted>,
    /// Limits on packages that others ask for.
    pub limits: BTreeMap<String, Reasoned<String>>,
    /// The day that versions are of.
    pub exclude_newer: Option<Reasoned<String>>,
    /// Wheels only.
    pub no_build: Option<String>,
    /// Variables.
    pub env: BTreeMap<String, Reasoned<String>>,
    /// The memory limit.
    pub memory: Option<Reasoned<String>>,
    /// Whether GPUs are hidden, and why.
    pub hide_gpu: Option<String>,
    /// Why the backend is what it is.
    pub backend: String,
    /// The parts of a spec that are taken as they are.
    #[serde(skip)]
    pub base: Spec,
}

impl Plan {
    /// The spec.
    pub fn spec(&self) -> Spec {
        let mut spec = self.base.clone();
        spec.name.clone_from(&self.name);
        spec.description = Some(self.description.clone()).filter(|text| !text.is_empty());
        spec.python = self.python.as_ref().map(|python| python.value.clone());
        spec.pip = self.packages.values().map(|wanted| wanted.requirement.clone()).collect();
        spec.pip.sort();
        let limits = self.limits.values().filter_map(|limit| Requirement::parse(&limit.value).ok());
        spec.constraints = self.base.constraints.iter().cloned().chain(limits).collect();
        spec.constraints.sort();
        spec.constraints.dedup();
        spec.exclude_newer = self.exclude_newer.as_ref().map(|day| day.value.clone());
        spec.no_build = self.no_build.is_some() || self.base.no_build;
        spec.env_vars.extend(self.env.iter().map(|(name, value)| (name.clone(), value.value.clone())));
        if let Some(memory) = &self.memory {
            spec.resources.memory = envharness_spec::parse_bytes(&memory.value);
        }
        if self.hide_gpu.is_some() {
            spec.resources.gpu = Some(envharness_spec::Gpu::None);
        }
        spec.file = None;
        spec
    }

    /// What tells one plan from another.
    pub fn fingerprint(&self) -> String {
        self.spec().digest().to_string()
    }

    /// The plan with a change. The change's own text is what was already there when nothing differs.
    #[must_use]
    pub fn with(&self, change: &Change, reason: &str, origin: Origin, module: Option<&str>) -> Self {
        let mut plan = self.clone();
        let reasoned = |value: &str| Reasoned { value: value.to_owned(), reason: reason.to_owned() };
        match change {
            Change::Add(text) => {
                if let Ok(requirement) = Requirement::parse(text)
                    && let Some(name) = requirement.name.clone()
                {
                    plan.add(&name, requirement, reason, origin, module);
                }
            }
            Change::Limit(text) => {
                if let Ok(requirement) = Requirement::parse(text)
                    && let Some(name) = requirement.name.clone()
                {
                    let limit = plan.limits.remove(&name);
                    match plan.packages.get_mut(&name) {
                        Some(wanted) => {
                            if let Some(limit) = limit {
                                wanted.reason = format!("{}; {} ({})", wanted.reason, limit.reason, limit.value);
                            }
                            wanted.requirement.specifiers = requirement.specifiers;
                            wanted.requirement.hashes.clear();
                            wanted.reason = format!("{}; {reason}", wanted.reason);
                        }
                        None => {
                            plan.limits.insert(name, reasoned(text));
                        }
                    }
                }
            }
            Change::Remove(name) => {
                plan.packages.remove(name);
            }
            Change::Python(version) => plan.python = Some(reasoned(version)),
            Change::ExcludeNewer(day) => plan.exclude_newer = day.as_deref().map(reasoned),
            Change::NoBuild(only) => plan.no_build = only.then(|| reason.to_owned()),
            Change::Env(name, value) => {
                plan.env.insert(name.clone(), reasoned(value));
            }
            Change::Memory(size) => plan.memory = size.as_deref().map(reasoned),
            Change::Gpu(visible) => plan.hide_gpu = (!visible).then(|| reason.to_owned()),
        }
        plan
    }

    fn add(&mut self, name: &str, requirement: Requirement, reason: &str, origin: Origin, module: Option<&str>) {
        match self.packages.get_mut(name) {
            Some(wanted) => {
                let both = [wanted.requirement.specifiers.as_str(), requirement.specifiers.as_str()];
                let mut parts: Vec<&str> = both.iter().flat_map(|text| text.split(',')).map(str::trim).filter(|p| !p.is_empty()).collect();
                parts.sort_unstable();
                parts.dedup();
                let joined = format!("{name}{}", parts.join(","));
                if let Ok(parsed) = Requirement::parse(&joined) {
                    wanted.requirement.specifiers = parsed.specifiers;
                }
                wanted.requirement.extras.extend(requirement.extras);
                wanted.requirement.extras.sort();
                wanted.requirement.extras.dedup();
                wanted.reason = format!("{}; {reason}", wanted.reason);
            }
            None => {
                let module = module.map(ToOwned::to_owned);
                self.packages.insert(name.to_owned(), Wanted { requirement, reason: reason.to_owned(), origin, module });
            }
        }
    }

    /// The spec as YAML, each line with its reason.
    pub fn text(&self, head: &[String]) -> String {
        let mut out: String = head.iter().map(|line| format!("# {line}\n")).collect();
        for line in self.spec().to_yaml().lines() {
            out.push_str(line);
            if let Some(reason) = self.reason_of(line) {
                out.push_str("  # ");
                out.push_str(&one_line(&reason));
            }
            out.push('\n');
        }
        out
    }

    fn reason_of(&self, line: &str) -> Option<String> {
        let trimmed = line.trim();
        if let Some(item) = trimmed.strip_prefix("- ") {
            let item = item.trim_matches('"');
            let wanted = self.packages.values().find(|wanted| wanted.requirement.to_string() == item);
            let limit = || {
                let parsed = |limit: &&Reasoned<String>| Requirement::parse(&limit.value).is_ok_and(|r| r.to_string() == item);
                self.limits.values().find(parsed).map(|limit| limit.reason.clone())
            };
            return wanted.map(|wanted| wanted.reason.clone()).or_else(limit);
        }
        let (key, value) = trimmed.split_once(':')?;
        let key = key.trim_matches('"');
        if value.trim().is_empty() {
            return None;
        }
        match key {
            "python" => self.python.as_ref().map(|python| python.reason.clone()),
            "backend" => Some(self.backend.clone()).filter(|reason| !reason.is_empty()),
            "exclude_newer" => self.exclude_newer.as_ref().map(|day| day.reason.clone()),
            "no_build" => self.no_build.clone(),
            "memory" => self.memory.as_ref().map(|memory| memory.reason.clone()),
            "gpu" => self.hide_gpu.clone(),
            _ => self.env.get(key).map(|value| value.reason.clone()),
        }
    }
}

/// A reason never breaks out of its comment.
fn one_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use envharness_spec::Format;

    use super::*;

    fn plan() -> Plan {
        let mut plan = Plan { name: "x".into(), ..Plan::default() };
        plan = plan.with(&Change::Add("numpy>=1.20".into()), "train.py:1 imports it", Origin::Table, Some("numpy"));
        plan.with(&Change::Python("3.11".into()), "newest that fits", Origin::Rule, None)
    }

    #[test]
    fn a_plan_is_a_spec_with_reasons() {
        let text = plan().text(&["Rigged".into()]);
        assert!(text.contains("- numpy>=1.20  # train.py:1 imports it"), "{text}");
        assert!(text.contains("3.11\"  # newest that fits") || text.contains("3.11  # newest that fits"), "{text}");
        let read = Spec::parse(&text, Format::Yaml, "x.yaml").unwrap();
        assert_eq!(read.digest(), plan().spec().digest());
    }

    #[test]
    fn changes_change_and_keep_reasons() {
        let changed = plan().with(&Change::Add("numpy<2".into()), "binary break", Origin::Rule, None);
        assert_eq!(changed.packages["numpy"].requirement.to_string(), "numpy<2,>=1.20");
        assert!(changed.packages["numpy"].reason.ends_with("; binary break"));
        let limited = changed.with(&Change::Limit("scipy<1.14".into()), "gone", Origin::Rule, None);
        assert_eq!(limited.spec().constraints[0].to_string(), "scipy<1.14");
        let replaced = limited.with(&Change::Limit("numpy==1.26.4".into()), "pin", Origin::Rule, None);
        assert_eq!(replaced.packages["numpy"].requirement.to_string(), "numpy==1.26.4");
        assert_ne!(replaced.fingerprint(), limited.fingerprint());
        assert!(replaced.with(&Change::Remove("numpy".into()), "", Origin::Rule, None).packages.is_empty());
    }

    #[test]
    fn a_reason_stays_in_its_comment() {
        let plan = plan().with(&Change::Env("A".into(), "1".into()), "evil\nimage: x", Origin::Rule, None);
        let read = Spec::parse(&plan.text(&[]), Format::Yaml, "x.yaml").unwrap();
        assert_eq!(read.image, None);
        assert_eq!(read.env_vars["A"], "1");
    }

    #[test]
    fn changes_are_read_as_an_advisor_writes_them() {
        let changes: Vec<Change> =
            serde_json::from_str(r#"[{"add": "numpy<2"}, {"python": "3.10"}, {"exclude_newer": null}, {"env": ["A", "1"]}]"#).unwrap();
        assert_eq!(changes[0], Change::Add("numpy<2".into()));
        assert_eq!(changes[2], Change::ExcludeNewer(None));
        assert_eq!(changes[3].to_string(), "set A=1");
    }
}
