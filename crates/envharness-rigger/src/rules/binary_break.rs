//! `binary-break`: native modules that were built for another release of what they stand on, above all numpy 2.

use super::{Finding, Rule, Scene};
use crate::plan::Change;
use crate::problem::Problem;

pub(super) struct BinaryBreak;

const SIGNS: [&str; 6] = [
    "compiled using NumPy 1.x cannot be run in",
    "numpy.core.multiarray failed to import",
    "numpy.dtype size changed, may indicate binary incompatibility",
    "numpy.ufunc size changed, may indicate binary incompatibility",
    "module compiled against API version",
    "_ARRAY_API not found",
];

impl Rule for BinaryBreak {
    fn name(&self) -> &'static str {
        "binary-break"
    }

    fn find(&self, problem: &Problem, scene: Scene<'_>) -> Option<Finding> {
        SIGNS.iter().find(|sign| problem.text.contains(**sign))?;
        let version = scene.versions.get("numpy").map_or("2", String::as_str);
        let asked = scene.plan.packages.get("numpy").map(|wanted| wanted.requirement.specifiers.clone()).unwrap_or_default();
        if version.starts_with("1.") {
            // The other way round: what was built for a newer numpy.
            let cause = format!("a native module was built for a newer numpy than {version}");
            return Some(Finding::new(self.name(), cause).way(vec![Change::Limit(format!("numpy>={version}"))]));
        }
        let cause = format!("a native module was built for numpy 1, and numpy is {version}");
        // What asks for numpy 2 itself is let go; other bounds stay.
        let stays = !asked.is_empty() && !asked.contains("==2") && !asked.contains(">=2");
        let change = if stays { Change::Add("numpy<2".into()) } else { Change::Limit("numpy<2".into()) };
        Some(Finding::new(self.name(), cause).way(vec![change]))
    }
}

#[cfg(test)]
mod tests {
    use super::super::scenes::{problem, scene};
    use super::*;
    use crate::problem::Stage;

    #[test]
    fn numpy_is_held_below_two() {
        let text = "A module that was compiled using NumPy 1.x cannot be run in\nNumPy 2.0.2 as it may crash.";
        let found =
            scene(&["numpy", "pandas==2.0.3"], &[("numpy", "2.0.2")]).ask(&BinaryBreak, &problem(Stage::Imports, Some("pandas"), text));
        assert_eq!(found.unwrap().ways, [[Change::Limit("numpy<2".into())]]);
        let found = scene(&["pandas==2.0.3"], &[("numpy", "2.0.2")]).ask(
            &BinaryBreak,
            &problem(Stage::Imports, Some("pandas"), "ValueError: numpy.dtype size changed, may indicate binary incompatibility."),
        );
        assert_eq!(found.unwrap().ways, [[Change::Limit("numpy<2".into())]]);
        assert!(scene(&[], &[]).ask(&BinaryBreak, &problem(Stage::Imports, None, "ImportError: x")).is_none());
    }
}
