//! `compiler-missing`: a source archive needs a compiler, or headers, that the machine does not have.

use super::build_fails::built;
use super::{Finding, Rule, Scene};
use crate::plan::Change;
use crate::problem::Problem;

pub(super) struct CompilerMissing;

/// What is said, and what would help.
const SIGNS: [(&str, &str); 12] = [
    ("error: command 'gcc' failed: No such file or directory", "`apt-get install gcc`"),
    ("command 'x86_64-linux-gnu-gcc' failed", "`apt-get install gcc`"),
    ("unable to execute 'gcc'", "`apt-get install gcc`"),
    ("error: command 'swig' failed", "`apt-get install swig`, or add `swig` to the build"),
    ("error: command 'cc' failed", "`apt-get install gcc`"),
    ("Python.h: No such file or directory", "`apt-get install python3-dev`"),
    ("No CMAKE_CXX_COMPILER could be found", "`apt-get install g++`"),
    ("CMake must be installed", "`apt-get install cmake`"),
    ("can't find Rust compiler", "install Rust"),
    ("Unknown compiler(s)", "`apt-get install gcc g++ gfortran`"),
    ("pg_config executable not found", "`apt-get install libpq-dev`, or take psycopg2-binary"),
    ("mysql_config: not found", "`apt-get install default-libmysqlclient-dev`"),
];

impl Rule for CompilerMissing {
    fn name(&self) -> &'static str {
        "compiler-missing"
    }

    fn find(&self, problem: &Problem, scene: Scene<'_>) -> Option<Finding> {
        let (sign, advice) = SIGNS.iter().find(|(sign, _)| problem.text.contains(sign))?;
        let package = built(&problem.text);
        let what = package.as_deref().map_or_else(|| "a package".to_owned(), |name| format!("`{name}`"));
        let mut finding = Finding::new(self.name(), format!("{what} has to be built here and cannot: {sign}")).offer(*advice);
        if package.as_deref() == Some("psycopg2") {
            finding = finding.way(vec![Change::Remove("psycopg2".into()), Change::Add("psycopg2-binary".into())]);
        }
        if scene.plan.no_build.is_none() {
            finding = finding.way(vec![Change::NoBuild(true)]);
        }
        for way in super::build_fails::ways(package.as_deref(), scene) {
            finding = finding.way(way);
        }
        Some(finding)
    }
}

#[cfg(test)]
mod tests {
    use super::super::scenes::{problem, scene};
    use super::*;
    use crate::problem::Stage;

    #[test]
    fn wheels_are_tried_and_the_compiler_is_named() {
        let text =
            "uv failed to resolve `x`\n  × Failed to build `box2d-py==2.3.5`\n  error: command 'swig' failed: No such file or directory";
        let found = scene(&["box2d-py"], &[]).ask(&CompilerMissing, &problem(Stage::Lock, None, text)).unwrap();
        assert_eq!(found.ways[0], [Change::NoBuild(true)]);
        assert!(found.cause.contains("box2d-py") && found.offer.unwrap().contains("swig"));
    }
}
