//! A traceback: which files took part, and which package failed.

use std::path::PathBuf;
use std::sync::LazyLock;

use envharness_rig::Rig;
use regex::Regex;

use super::{dates, sources};
use crate::error::RiggerError;
use crate::evidence::texts::pattern;
use crate::evidence::{Evidence, Import, Kind, Need};

static FRAME: LazyLock<Regex> = LazyLock::new(|| pattern(r#"File "([^"]+)", line (\d+)"#));
static INSTALLED: LazyLock<Regex> = LazyLock::new(|| pattern(r"/(?:site|dist)-packages/(\w+)"));
static MISSING: LazyLock<Regex> = LazyLock::new(|| pattern(r"No module named ['\x22]?([\w.]+)"));
static PYTHON: LazyLock<Regex> = LazyLock::new(|| pattern(r"/python(3\.\d+)/"));

/// Reads a traceback; the sources that it names and that are here are read as well.
pub(super) fn read(rig: &Rig, text: &str) -> Result<Evidence, RiggerError> {
    if !text.contains("Traceback") && !text.contains("Error") {
        return Err(RiggerError::Target {
            target: "-".into(),
            reason: "there is no traceback on standard input".into(),
            hint: Some("as in `python train.py 2>&1 | envharness rig -`".into()),
        });
    }
    let root = std::env::current_dir().unwrap_or_else(|_| PathBuf::from("/"));
    let mut evidence = Evidence::new(Kind::Traceback, "traceback", root.clone());
    let frames: Vec<PathBuf> = FRAME.captures_iter(text).map(|found| root.join(&found[1])).collect();
    let own: Vec<PathBuf> = frames
        .iter()
        .filter(|path| path.is_file() && path.extension().is_some_and(|e| e == "py"))
        .filter(|path| !["site-packages", "dist-packages", "/lib/python3"].iter().any(|part| path.to_string_lossy().contains(part)))
        .cloned()
        .collect();
    if let Some(first) = own.first() {
        evidence.name = crate::evidence::spec_name(&first.file_stem().unwrap_or_default().to_string_lossy());
        evidence.file = Some(first.clone());
        evidence.root = sources::project_root(first.parent().unwrap_or(&root));
    }
    sources::follow(rig, own, &mut evidence)?;
    let packages = INSTALLED.captures_iter(text).map(|found| found[1].to_owned());
    let missing = MISSING.captures_iter(text).map(|found| found[1].to_owned());
    for module in packages.chain(missing).filter(|module| !module.starts_with('_')) {
        let top = module.split('.').next().unwrap_or(&module).to_owned();
        if !evidence.imports.iter().any(|import| import.module.split('.').next() == Some(&top)) {
            evidence.imports.push(Import {
                module: top,
                names: Vec::new(),
                place: "the traceback".into(),
                need: Need::Required,
                group: None,
            });
        }
    }
    if let Some(found) = PYTHON.captures(text) {
        let bound =
            crate::evidence::PythonBound { specifier: format!("=={}.*", &found[1]), why: "the traceback is of it".into(), firm: false };
        evidence.pythons.push(bound);
    }
    let root = evidence.root.clone();
    dates(&root, &mut evidence);
    Ok(evidence)
}
