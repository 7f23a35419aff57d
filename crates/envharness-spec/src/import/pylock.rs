//! PEP 751 `pylock.toml` as a spec: every package pinned, with the hashes it must have.

use crate::error::SpecError;
use crate::requirement::{Location, Requirement, normalize_name};
use crate::source::{Node, Value, parse_toml};
use crate::spec::Spec;

pub(super) fn read(text: &str, file: &str, name: &str) -> Result<Spec, SpecError> {
    let root = parse_toml(text, file)?;
    let version = string(root.get("lock-version")).unwrap_or_default();
    if !version.starts_with("1.") {
        return Err(SpecError::new(file, format!("lock-version `{version}` is not known; 1.x is")));
    }
    let mut spec = Spec { name: name.to_owned(), python: string(root.get("requires-python")), ..Spec::default() };
    let Some(Value::List(packages)) = root.get("packages").map(|node| &node.value) else { return Ok(spec) };
    for package in packages {
        let name =
            string(package.get("name")).ok_or_else(|| SpecError::new(file, "a package without a name").at(package.at, "packages"))?;
        spec.pip.push(requirement(package, &name));
    }
    Ok(spec)
}

fn requirement(package: &Node, name: &str) -> Requirement {
    let mut hashes: Vec<String> = Vec::new();
    let lists = [package.get("wheels"), package.get("sdist"), package.get("archive")];
    for artifact in lists.into_iter().flatten() {
        let items = match &artifact.value {
            Value::List(items) => items.iter().collect(),
            _ => vec![artifact],
        };
        hashes.extend(items.iter().filter_map(|item| string(item.get("hashes")?.get("sha256")).map(|h| format!("sha256:{h}"))));
    }
    hashes.sort();
    hashes.dedup();
    let archive = package.get("archive").and_then(|a| string(a.get("url")));
    let vcs = package.get("vcs").and_then(|vcs| {
        let commit = string(vcs.get("commit-id"))?;
        Some(format!("git+{}@{commit}", string(vcs.get("url"))?))
    });
    let directory = package.get("directory").and_then(|d| string(d.get("path")));
    let location = archive.or(vcs).map(Location::Url);
    let location = location.or(directory.map(|path| Location::Path { path: dotted(path), editable: false }));
    let path = matches!(location, Some(Location::Path { .. }));
    Requirement {
        name: (!path).then(|| normalize_name(name)),
        extras: Vec::new(),
        specifiers: match (&location, string(package.get("version"))) {
            (None, Some(version)) => format!("=={version}"),
            _ => String::new(),
        },
        hashes: if location.is_none() { hashes } else { Vec::new() },
        location,
        marker: string(package.get("marker")),
    }
}

/// A relative path that reads as one.
fn dotted(path: String) -> String {
    if path.starts_with(['.', '/']) { path } else { format!("./{path}") }
}

fn string(node: Option<&Node>) -> Option<String> {
    match &node?.value {
        Value::String(text) => Some(text.clone()),
        _ => None,
    }
}
