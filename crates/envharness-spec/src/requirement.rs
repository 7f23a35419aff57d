//! pip requirements: PEP 508 lines, paths and URLs, in one canonical text each.

use std::fmt;
use std::str::FromStr;

use pep440_rs::{Operator, VersionSpecifiers};
use pep508_rs::{MarkerTree, VersionOrUrl};

/// One pip requirement in canonical form: name normalised, extras and version specifiers sorted.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Requirement {
    /// The normalised name; `None` for a path or URL that gives none.
    pub name: Option<String>,
    /// Normalised extras, sorted.
    pub extras: Vec<String>,
    /// Version specifiers such as `==1.24.3`; empty for any version.
    pub specifiers: String,
    /// A URL (`https://`, `git+https://`) or a path as written.
    pub location: Option<Location>,
    /// The environment marker, without the semicolon.
    pub marker: Option<String>,
    /// `sha256:` hashes that an artifact must have, as in hash-checked requirement files.
    pub hashes: Vec<String>,
}

/// Where a requirement that is not from an index comes from.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Location {
    /// A URL, `git+...` included.
    Url(String),
    /// A local path, relative to the spec's folder unless absolute.
    Path {
        /// The path as written.
        path: String,
        /// Whether the source itself is used (`-e`).
        editable: bool,
    },
}

impl Requirement {
    /// Reads one requirement; the error is a message and a hint.
    pub fn parse(text: &str) -> Result<Self, (String, Option<String>)> {
        let text = text.trim();
        let (text, hashes) = split_hashes(text)?;
        let (text, editable) = match text.strip_prefix("-e ").or_else(|| text.strip_prefix("--editable ")) {
            Some(rest) => (rest.trim(), true),
            None => (text.as_str(), false),
        };
        let mut requirement = if is_location(text) { location(text, editable)? } else { named(text)? };
        if editable && !matches!(requirement.location, Some(Location::Path { .. })) {
            return Err((format!("`{text}` cannot be editable: it is not a local path"), None));
        }
        requirement.hashes = hashes;
        Ok(requirement)
    }

    /// The local path as written, and whether it is editable.
    pub fn local_path(&self) -> Option<(&str, bool)> {
        match &self.location {
            Some(Location::Path { path, editable }) => Some((path, *editable)),
            _ => None,
        }
    }

    /// The specifiers, parsed.
    pub fn version_specifiers(&self) -> VersionSpecifiers {
        VersionSpecifiers::from_str(&self.specifiers).unwrap_or_else(|_| VersionSpecifiers::empty())
    }

    /// Whether two requirements for one package can never hold together.
    pub fn collides_with(&self, other: &Self) -> bool {
        if self.name.is_none() || self.name != other.name || self.markers_disjoint(other) {
            return false;
        }
        let (mine, theirs) = (self.version_specifiers(), other.version_specifiers());
        let excluded = |exact: &VersionSpecifiers, others: &VersionSpecifiers| {
            exact.iter().any(|s| *s.operator() == Operator::Equal && !others.contains(s.version()))
        };
        excluded(&mine, &theirs) || excluded(&theirs, &mine)
    }

    /// Whether the two say the same, hashes aside.
    pub fn repeats(&self, other: &Self) -> bool {
        let without = |r: &Self| Self { hashes: Vec::new(), ..r.clone() };
        without(self) == without(other)
    }

    fn markers_disjoint(&self, other: &Self) -> bool {
        let tree =
            |marker: &Option<String>| marker.as_deref().map_or(MarkerTree::TRUE, |m| MarkerTree::from_str(m).unwrap_or(MarkerTree::TRUE));
        tree(&self.marker).is_disjoint(&tree(&other.marker))
    }
}

impl fmt::Display for Requirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let extras = if self.extras.is_empty() { String::new() } else { format!("[{}]", self.extras.join(",")) };
        match (&self.name, &self.location) {
            (Some(name), None) => write!(f, "{name}{extras}{}", self.specifiers)?,
            (Some(name), Some(Location::Url(url))) => write!(f, "{name}{extras} @ {url}")?,
            (None, Some(Location::Url(url))) => write!(f, "{url}{extras}")?,
            (_, Some(Location::Path { path, editable })) => {
                write!(f, "{}{path}{extras}", if *editable { "-e " } else { "" })?;
            }
            (None, None) => {}
        }
        if let Some(marker) = &self.marker {
            write!(f, " ; {marker}")?;
        }
        for hash in &self.hashes {
            write!(f, " --hash={hash}")?;
        }
        Ok(())
    }
}

/// Normalises a package name (PEP 503).
pub fn normalize_name(name: &str) -> String {
    let mut out = String::with_capacity(name.len());
    for c in name.chars() {
        match c {
            '-' | '_' | '.' if out.ends_with('-') => {}
            '-' | '_' | '.' => out.push('-'),
            c => out.push(c.to_ascii_lowercase()),
        }
    }
    out
}

fn split_hashes(text: &str) -> Result<(String, Vec<String>), (String, Option<String>)> {
    let mut hashes = Vec::new();
    let mut parts = text.split("--hash");
    let head = parts.next().unwrap_or_default().trim().to_owned();
    for part in parts {
        let hash = part.trim_start_matches(['=', ' ']).trim();
        if !hash.starts_with("sha256:") {
            let hint = Some("only sha256 hashes are checked".to_owned());
            return Err((format!("`{hash}` is not a sha256 hash"), hint));
        }
        hashes.push(hash.to_owned());
    }
    hashes.sort();
    Ok((head, hashes))
}

fn is_location(text: &str) -> bool {
    let scheme = text
        .split_once("://")
        .is_some_and(|(scheme, _)| !scheme.is_empty() && scheme.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'+'));
    scheme
        || text.starts_with(['.', '/', '~'])
        || text.starts_with("file:")
        || [".whl", ".tar.gz", ".zip"].iter().any(|end| text.ends_with(end) && !text.contains('@'))
}

fn location(text: &str, editable: bool) -> Result<Requirement, (String, Option<String>)> {
    let (text, marker) = match text.split_once(" ;").or_else(|| text.split_once("; ")) {
        Some((text, marker)) => (text.trim(), Some(parse_marker(marker.trim())?)),
        None => (text, None),
    };
    let (body, extras) = match text.strip_suffix(']').and_then(|t| t.rsplit_once('[')) {
        Some((body, extras)) => (body, extras.split(',').map(|e| normalize_name(e.trim())).collect()),
        None => (text, Vec::new()),
    };
    let path = body.strip_prefix("file://").or_else(|| body.strip_prefix("file:"));
    let location = match path {
        Some(path) => Location::Path { path: path.to_owned(), editable },
        None if body.contains("://") => {
            refuse_credentials(body)?;
            Location::Url(body.to_owned())
        }
        None => Location::Path { path: body.to_owned(), editable },
    };
    Ok(Requirement { name: None, extras, specifiers: String::new(), location: Some(location), marker, hashes: Vec::new() })
}

/// Refuses `https://user:secret@host`: a spec is a file that is kept and shared.
pub(crate) fn refuse_credentials(url: &str) -> Result<(), (String, Option<String>)> {
    let authority = url.split_once("://").map_or("", |(_, rest)| rest.split(['/', '?', '#']).next().unwrap_or(""));
    match authority.rsplit_once('@') {
        Some((user, _)) if user.contains(':') || !url.starts_with("git+ssh") => Err((
            "a URL in a spec must not hold credentials".to_owned(),
            Some("put them into `~/.netrc` or `UV_INDEX_<NAME>_USERNAME` and `UV_INDEX_<NAME>_PASSWORD`".to_owned()),
        )),
        _ => Ok(()),
    }
}

fn parse_marker(text: &str) -> Result<String, (String, Option<String>)> {
    let tree = MarkerTree::from_str(text).map_err(|error| (format!("bad marker `{text}`: {}", first_line(&error)), None))?;
    Ok(tree.try_to_string().unwrap_or_else(|| text.to_owned()))
}

/// Refuses names that end with `.`, `-` or `_` before the parser sees them: it would panic (pep508_rs 0.9.2).
fn check_names(text: &str) -> Result<(), (String, Option<String>)> {
    let leading = |text: &str| text.chars().take_while(|c| c.is_ascii_alphanumeric() || "._-".contains(*c)).collect::<String>();
    let name = leading(text);
    let rest = text[name.len()..].trim_start();
    let extras = rest.strip_prefix('[').map_or("", |rest| rest.split(']').next().unwrap_or(rest));
    for part in std::iter::once(name).chain(extras.split(',').map(|extra| leading(extra.trim_start()))) {
        if part.ends_with(['.', '-', '_']) {
            return Err((format!("`{text}` is not a requirement: `{part}` does not end with a letter or digit"), None));
        }
    }
    Ok(())
}

fn named(text: &str) -> Result<Requirement, (String, Option<String>)> {
    check_names(text)?;
    let parsed = pep508_rs::Requirement::<pep508_rs::VerbatimUrl>::from_str(text).map_err(|error| {
        let hint = conda_style(text).map(|fixed| format!("a pip pin has two equals signs: `{fixed}`"));
        (format!("`{text}` is not a requirement: {}", first_line(&error)), hint)
    })?;
    let mut extras: Vec<String> = parsed.extras.iter().map(|e| normalize_name(e.as_ref())).collect();
    extras.sort();
    extras.dedup();
    let (mut specifiers, mut location) = (String::new(), None);
    match parsed.version_or_url {
        None => {}
        Some(VersionOrUrl::VersionSpecifier(set)) => {
            let mut list: Vec<String> = set.iter().map(ToString::to_string).collect();
            list.sort();
            specifiers = list.join(",");
        }
        Some(VersionOrUrl::Url(url)) => {
            let given = url.given().unwrap_or_default().to_owned();
            refuse_credentials(&given)?;
            location = Some(Location::Url(given));
        }
    }
    Ok(Requirement {
        name: Some(normalize_name(parsed.name.as_ref())),
        extras,
        specifiers,
        location,
        marker: parsed.marker.try_to_string(),
        hashes: Vec::new(),
    })
}

/// `numpy=1.24` in a pip list: what the writer meant.
fn conda_style(text: &str) -> Option<String> {
    let (name, version) = text.split_once('=')?;
    let plain = check_names(text).is_ok() && !version.starts_with('=') && !name.ends_with(['=', '<', '>', '!', '~']);
    let fixed = format!("{}=={}", name.trim(), version.trim().split('=').next()?);
    (plain && pep508_rs::Requirement::<pep508_rs::VerbatimUrl>::from_str(&fixed).is_ok()).then_some(fixed)
}

fn first_line(error: &impl fmt::Display) -> String {
    let text = error.to_string();
    let line = text.lines().next().unwrap_or_default();
    let mut chars = line.chars();
    chars.next().map_or_else(String::new, |c| c.to_ascii_lowercase().to_string() + chars.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn canonical(text: &str) -> String {
        Requirement::parse(text).expect(text).to_string()
    }

    #[test]
    fn one_text_for_every_way_to_write_it() {
        assert_eq!(canonical("Ray[RLlib] == 2.5.1"), "ray[rllib]==2.5.1");
        assert_eq!(canonical("foo_bar<2,>=1"), canonical("Foo.Bar >=1, <2"));
        assert_eq!(canonical("numpy ; python_version < '3.9'"), "numpy ; python_full_version < '3.9'");
        assert_eq!(canonical("-e ./agent[dev]"), "-e ./agent[dev]");
        assert_eq!(canonical("git+https://example.org/a.git@v1"), "git+https://example.org/a.git@v1");
        assert_eq!(canonical("a @ https://example.org/a.whl"), "a @ https://example.org/a.whl");
    }

    #[test]
    fn wrong_lines_say_what_was_meant() {
        let (_, hint) = Requirement::parse("numpy=1.24.3").unwrap_err();
        assert!(hint.unwrap().contains("numpy==1.24.3"));
        assert!(Requirement::parse("https://me:secret@example.org/a.whl").is_err());
        assert!(Requirement::parse("numpy==not.a.version").is_err());
        assert!(Requirement::parse("").is_err());
        for text in ["numpy->=1", "a.[x]", "a[x-]", "a[ y , x_ ]>1", "-", "a-\u{11bc0}"] {
            assert!(Requirement::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn pins_collide_when_no_version_can_satisfy_both() {
        let collide = |a, b| Requirement::parse(a).unwrap().collides_with(&Requirement::parse(b).unwrap());
        assert!(collide("numpy==1.24", "numpy==1.26"));
        assert!(collide("numpy==1.24", "numpy>=2"));
        assert!(!collide("numpy>=1.24", "numpy<2"));
        assert!(!collide("a==1 ; sys_platform == 'linux'", "a==2 ; sys_platform == 'darwin'"));
    }
}
