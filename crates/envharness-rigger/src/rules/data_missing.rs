//! `data-missing`: a file that the task reads is not there. Said, not mended.

use std::sync::LazyLock;

use regex::Regex;

use super::{Finding, Rule, Scene};
use crate::evidence::texts::pattern;
use crate::problem::{Problem, Stage};

pub(super) struct DataMissing;

static FILE: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"(?:FileNotFoundError|OSError|IOError)[^\n]*(?:No such file or directory|not found)[^'\n]*'([^']+)'"));

impl Rule for DataMissing {
    fn name(&self) -> &'static str {
        "data-missing"
    }

    fn find(&self, problem: &Problem, _: Scene<'_>) -> Option<Finding> {
        if problem.stage < Stage::Check {
            return None;
        }
        let found = FILE.captures_iter(&problem.text).last()?;
        let path = &found[1];
        let finding = Finding::new(self.name(), format!("the task reads `{path}`, which is not there"));
        Some(finding.offer(if path.contains('/') {
            "put the file there, or run the check in the folder that it is relative to"
        } else {
            "put the file there, run the check in its folder, or install the program of that name"
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::super::scenes::{problem, scene};
    use super::*;

    #[test]
    fn the_file_is_named() {
        let text = "FileNotFoundError: [Errno 2] No such file or directory: 'data/train.csv'";
        let found = scene(&[], &[]).ask(&DataMissing, &problem(Stage::Check, None, text)).unwrap();
        assert!(found.ways.is_empty() && found.cause.contains("data/train.csv"));
    }
}
