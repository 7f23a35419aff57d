//! What a task says of itself: plain data with the place of each piece, gathered by [`crate::read`].

pub mod lines;
pub mod texts;

use std::collections::BTreeMap;
use std::path::PathBuf;

use envharness_spec::Spec;
use serde::Serialize;

/// The kinds of targets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// One Python file.
    Script,
    /// A notebook.
    Notebook,
    /// A folder of sources.
    Folder,
    /// A folder with an environment in it.
    EnvPackage,
    /// A spec that does not work, or no longer.
    Spec,
    /// A traceback.
    Traceback,
}

/// How much an import matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Need {
    /// The task does not start without it.
    Required,
    /// Imported when a function runs.
    Lazy,
    /// Imported by its name as a text.
    Dynamic,
    /// The task goes on without it.
    Optional,
}

/// A module that the task imports and neither has itself nor gets from the standard library.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Import {
    /// The dotted name.
    pub module: String,
    /// What is taken from it.
    pub names: Vec<String>,
    /// File and line.
    pub place: String,
    /// How much it matters.
    pub need: Need,
    /// Imports of one number in one file stand in for each other.
    pub group: Option<String>,
}

/// A requirement that the task declares.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Declared {
    /// As written.
    pub text: String,
    /// File and line.
    pub place: String,
    /// How far it is trusted.
    pub weight: Weight,
}

/// How far a declaration is trusted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Weight {
    /// A file of requirements: it is what is asked for.
    Declared,
    /// A line that somebody runs by hand, as in a README, a CI file, a notebook: versions of what is imported.
    Mentioned,
}

/// A bound on the Python version.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PythonBound {
    /// A specifier such as `>=3.10` or `<3.12`.
    pub specifier: String,
    /// Why, with the place.
    pub why: String,
    /// Whether the task cannot do without: syntax and missing modules are facts, a CI file is a hint.
    pub firm: bool,
}

/// A day that the task knows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Dated {
    /// ISO, `2023-05-04`.
    pub day: String,
    /// Where it says so.
    pub why: String,
    /// Whether versions are chosen by it from the start; else it is tried where newer versions fail.
    pub firm: bool,
}

/// All that was read.
#[derive(Debug, Clone, Serialize)]
pub struct Evidence {
    /// What the target is.
    pub kind: Kind,
    /// A name for the spec.
    pub name: String,
    /// The folder that places are relative to.
    pub root: PathBuf,
    /// The file, where the target is one.
    pub file: Option<PathBuf>,
    /// Sources that were read.
    pub sources: Vec<String>,
    /// Imports of other packages.
    pub imports: Vec<Import>,
    /// Dotted names that are used of them, with the first place.
    pub uses: BTreeMap<String, String>,
    /// Declared requirements.
    pub declared: Vec<Declared>,
    /// Limits on versions that install nothing.
    pub constraints: Vec<Declared>,
    /// Bounds on the Python.
    pub pythons: Vec<PythonBound>,
    /// Days.
    pub dates: Vec<Dated>,
    /// Where GPUs are used.
    pub gpu: Vec<String>,
    /// System packages that the task's own recipes install.
    pub system: Vec<String>,
    /// Commands that a README tells to run. Nothing runs them by itself.
    pub commands: Vec<String>,
    /// Imports whose name is made at run time.
    pub unknown: Vec<String>,
    /// What could not be read, and other remarks.
    pub notes: Vec<String>,
    /// The parts of a spec that are taken as they are: conda packages, channels, indexes.
    #[serde(skip)]
    pub base: Spec,
    /// The application of an env package, `server.app:app`.
    pub application: Option<String>,
    /// Where the task's own modules lie beside its file, relative to the root.
    pub paths: Vec<String>,
}

impl Evidence {
    /// An empty one.
    pub fn new(kind: Kind, name: &str, root: PathBuf) -> Self {
        Self {
            kind,
            name: spec_name(name),
            root,
            file: None,
            sources: Vec::new(),
            imports: Vec::new(),
            uses: BTreeMap::new(),
            declared: Vec::new(),
            constraints: Vec::new(),
            pythons: Vec::new(),
            dates: Vec::new(),
            gpu: Vec::new(),
            system: Vec::new(),
            commands: Vec::new(),
            unknown: Vec::new(),
            notes: Vec::new(),
            base: Spec::default(),
            application: None,
            paths: Vec::new(),
        }
    }

    /// Imports that must work, one of each module.
    pub fn needed(&self) -> Vec<&Import> {
        let mut out: Vec<&Import> = Vec::new();
        for import in self.imports.iter().filter(|import| import.need != Need::Optional) {
            if !out.iter().any(|other| other.module == import.module) {
                out.push(import);
            }
        }
        out
    }

    /// The place of a module's or a dotted name's use.
    pub fn place_of(&self, dotted: &str) -> Option<&str> {
        let exact = self.uses.get(dotted).map(String::as_str);
        let by_name = || {
            let matches =
                |import: &&Import| import.module == dotted || import.names.iter().any(|name| format!("{}.{name}", import.module) == dotted);
            self.imports.iter().find(matches).map(|import| import.place.as_str())
        };
        let below = || self.imports.iter().find(|import| import.module.starts_with(&format!("{dotted}."))).map(|i| i.place.as_str());
        exact.or_else(by_name).or_else(below)
    }
}

/// A name that a spec may have.
pub fn spec_name(text: &str) -> String {
    let lower = text.to_lowercase();
    let name: String = lower.chars().map(|c| if c.is_ascii_alphanumeric() || "_.-".contains(c) { c } else { '-' }).take(63).collect();
    let name = name.trim_matches(['-', '.', '_']).to_owned();
    if name.is_empty() { "task".to_owned() } else { name }
}
