//! `cuda-too-new`: packages were built for a newer CUDA than the driver knows.

use std::sync::LazyLock;

use regex::Regex;

use super::{Finding, Rule, Scene};
use crate::evidence::texts::pattern;
use crate::plan::Change;
use crate::problem::Problem;

pub(super) struct CudaTooNew;

static FOUND: LazyLock<Regex> = LazyLock::new(|| pattern(r"driver on your system is too old \(found version (\d+)\)"));
const SIGNS: [&str; 3] = [
    "driver on your system is too old",
    "CUDA driver version is insufficient for CUDA runtime version",
    "forward compatibility was attempted",
];
/// The first CUDA that needs more than the row before, and the last torch from the index whose wheels do without.
const TORCH: [(u32, &str); 4] = [(13_000, "torch<2.10"), (12_060, "torch<2.7"), (12_010, "torch<2.1"), (11_070, "torch<1.13")];

impl Rule for CudaTooNew {
    fn name(&self) -> &'static str {
        "cuda-too-new"
    }

    fn find(&self, problem: &Problem, scene: Scene<'_>) -> Option<Finding> {
        SIGNS.iter().find(|sign| problem.text.contains(**sign))?;
        let said = FOUND.captures(&problem.text).and_then(|found| found[1].parse::<u32>().ok()).map(|number| number / 10 * 10);
        let known = scene.world.cuda.as_deref().and_then(|text| {
            let (major, minor) = text.split_once('.')?;
            Some(major.parse::<u32>().ok()? * 1000 + minor.parse::<u32>().ok()? * 10)
        });
        let driver = said.or(known);
        let text = driver.map_or_else(|| "less".to_owned(), |number| format!("CUDA {}.{}", number / 1000, number % 1000 / 10));
        let mut finding = Finding::new(self.name(), format!("a package was built for a newer CUDA than the driver knows, which is {text}"));
        for (_, requirement) in TORCH.iter().filter(|(needs, _)| driver.is_none_or(|driver| driver < *needs)) {
            if scene.versions.contains_key("torch") {
                finding = finding.way(vec![Change::Limit((*requirement).to_owned())]);
            }
        }
        Some(finding.offer("update the NVIDIA driver"))
    }
}

#[cfg(test)]
mod tests {
    use super::super::scenes::{problem, scene};
    use super::*;
    use crate::problem::Stage;

    #[test]
    fn an_older_build_is_tried() {
        let text = "RuntimeError: The NVIDIA driver on your system is too old (found version 12020).";
        let found = scene(&["torch"], &[("torch", "2.15.0")]).ask(&CudaTooNew, &problem(Stage::Check, None, text)).unwrap();
        assert!(found.cause.contains("CUDA 12.2"), "{}", found.cause);
        assert_eq!(found.ways, [[Change::Limit("torch<2.10".into())], [Change::Limit("torch<2.7".into())]]);
    }
}
