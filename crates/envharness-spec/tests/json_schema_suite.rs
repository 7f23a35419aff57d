//! The published JSON Schema test suite, draft 2020-12, through the contract's validator.
//!
//! The suite is not part of this repository. Where it is not beside the workspace the test says so and passes.

#![expect(clippy::print_stderr, reason = "the counts are for whoever runs the suite")]

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use envharness_spec::contract::{Validator, ValidatorOptions};
use serde::Deserialize;
use serde_json::Value;

#[derive(Deserialize)]
struct Group {
    description: String,
    schema: Value,
    tests: Vec<Case>,
}

#[derive(Deserialize)]
struct Case {
    description: String,
    data: Value,
    valid: bool,
}

fn suite() -> Option<PathBuf> {
    let suite = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/corpora/json-schema-2020-12");
    suite.is_dir().then_some(suite)
}

fn files(folder: &Path, extension: &str) -> Vec<PathBuf> {
    let mut out = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("a folder").map(|entry| entry.expect("an entry").path()) {
            match entry.is_dir() {
                true => folders.push(entry),
                false if entry.extension().is_some_and(|e| e == extension) => out.push(entry),
                false => {}
            }
        }
    }
    out.sort();
    out
}

fn read<T: for<'de> Deserialize<'de>>(path: &Path) -> T {
    let text = fs::read_to_string(path).expect("a file");
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The documents that the suite expects at its own address.
fn remotes(suite: &Path) -> ValidatorOptions {
    let folder = suite.join("remotes");
    files(&folder, "json").iter().fold(Validator::options(), |options, path| {
        let name = path.strip_prefix(&folder).expect("below the folder").to_string_lossy().replace('\\', "/");
        options.document(&format!("http://localhost:1234/{name}"), read(path))
    })
}

#[derive(Default)]
struct Tally {
    passed: usize,
    failed: Vec<String>,
}

impl Tally {
    fn run(&mut self, path: &Path, options: &ValidatorOptions) {
        let file = path.file_stem().unwrap_or_default().to_string_lossy();
        for group in read::<Vec<Group>>(path) {
            let validator = options.clone().compile(&group.schema);
            for case in group.tests {
                let name = format!("{file}: {}: {}", group.description, case.description);
                match &validator {
                    Err(error) => self.failed.push(format!("{name} ({error})")),
                    Ok(validator) if validator.is_valid(&case.data) != case.valid => self.failed.push(name),
                    Ok(validator) if validator.problems(&case.data).is_empty() != case.valid => {
                        self.failed.push(format!("{name} (the list of problems says otherwise)"));
                    }
                    Ok(_) => self.passed += 1,
                }
            }
        }
    }
}

#[test]
fn every_required_test_passes() {
    let Some(suite) = suite() else {
        eprintln!("skipped: the JSON Schema test suite is not here");
        return;
    };
    let options = remotes(&suite);
    let mut tally = Tally::default();
    let folder = suite.join("tests/draft2020-12");
    for path in files(&folder, "json").iter().filter(|path| path.parent() == Some(&folder)) {
        tally.run(path, &options);
    }
    eprintln!("required: {} passed, {} failed", tally.passed, tally.failed.len());
    assert!(tally.failed.is_empty(), "{:#?}", tally.failed);
    assert!(tally.passed > 1000, "the suite has more tests than {}", tally.passed);
}

/// Formats are a rule on request only; how many of their tests pass is printed, and nothing more is promised.
#[test]
fn optional_tests_are_counted() {
    let Some(suite) = suite() else {
        eprintln!("skipped: the JSON Schema test suite is not here");
        return;
    };
    let options = remotes(&suite);
    let mut report = String::new();
    let (mut passed, mut failed) = (0, 0);
    let folder = suite.join("tests/draft2020-12/optional");
    for path in files(&folder, "json") {
        let is_format = path.parent().is_some_and(|parent| parent.ends_with("format"));
        let mut tally = Tally::default();
        tally.run(&path, &options.clone().formats(is_format));
        let name = path.strip_prefix(&folder).unwrap_or(&path).with_extension("");
        passed += tally.passed;
        failed += tally.failed.len();
        let _ = writeln!(report, "optional {}: {} passed, {} failed", name.display(), tally.passed, tally.failed.len());
    }
    eprintln!("{report}optional: {passed} passed, {failed} failed");
}
