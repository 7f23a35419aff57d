//! `system-library`: a shared library that no Python package brings.

use std::sync::LazyLock;

use regex::Regex;

use super::{Finding, Rule, Scene};
use crate::evidence::texts::pattern;
use crate::plan::Change;
use crate::problem::Problem;

pub(super) struct SystemLibrary;

static MISSING: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"(lib[\w.+-]+\.so[\w.]*): cannot open shared object file|[Ll]ibrary ['\x22]?(\w+)['\x22]? (?:is )?not found|no library called ['\x22]([\w.-]+)|cannot load library ['\x22]([\w.-]+)|(\w+) library not found",
    )
});
/// Libraries and the Debian packages that hold them.
const DEBIAN: [(&str, &str); 19] = [
    ("libGL.so", "libgl1"),
    ("libEGL.so", "libegl1"),
    ("libGLU.so", "libglu1-mesa"),
    ("libOSMesa.so", "libosmesa6"),
    ("libglib-2.0.so", "libglib2.0-0"),
    ("libgthread-2.0.so", "libglib2.0-0"),
    ("libSM.so", "libsm6"),
    ("libXext.so", "libxext6"),
    ("libXrender.so", "libxrender1"),
    ("libX11.so", "libx11-6"),
    ("libxcb.so", "libxcb1"),
    ("libgomp.so", "libgomp1"),
    ("libsndfile.so", "libsndfile1"),
    ("libportaudio.so", "libportaudio2"),
    ("libmagic", "libmagic1"),
    ("libpq.so", "libpq5"),
    ("libcairo", "libcairo2"),
    ("libmpi.so", "libopenmpi3"),
    ("libusb", "libusb-1.0-0"),
];

impl Rule for SystemLibrary {
    fn name(&self) -> &'static str {
        "system-library"
    }

    fn find(&self, problem: &Problem, scene: Scene<'_>) -> Option<Finding> {
        let found = MISSING.captures(&problem.text)?;
        let library = (1..=5).find_map(|index| found.get(index)).map(|m| m.as_str().to_owned())?;
        if library.starts_with("libcuda") || library.starts_with("libnvidia") {
            return None;
        }
        let mut finding = Finding::new(self.name(), format!("the system has no `{library}`"));
        let drawn = ["imshow", "namedWindow", "waitKey", "destroyAllWindows"]
            .iter()
            .any(|name| scene.evidence.uses.contains_key(&format!("cv2.{name}")));
        for (name, headless) in [("opencv-python", "opencv-python-headless"), ("opencv-contrib-python", "opencv-contrib-python-headless")] {
            if let Some(wanted) = scene
                .plan
                .packages
                .get(name)
                .filter(|_| library.starts_with("libGL") || library.starts_with("libg") || library.starts_with("libxcb"))
            {
                if drawn {
                    finding = finding.offer(format!("the task opens windows, so {headless} would not do"));
                } else {
                    let same = format!("{headless}{}", wanted.requirement.specifiers);
                    finding = finding.way(vec![Change::Remove(name.into()), Change::Add(same)]);
                }
            }
        }
        let package =
            DEBIAN.iter().find(|(known, _)| library.starts_with(known) || known.trim_start_matches("lib").starts_with(library.as_str()));
        let asked = scene
            .evidence
            .system
            .iter()
            .find(|name| package.is_none_or(|(_, debian)| name.starts_with(debian.trim_end_matches(char::is_numeric))));
        let advice = match (package, asked) {
            (Some((_, debian)), Some(_)) => format!("the task's own recipe installs it too: `apt-get install {debian}`"),
            (Some((_, debian)), None) => format!("`apt-get install {debian}`, or a conda package that brings it"),
            (None, Some(name)) => format!("the task's own recipe installs `{name}`: `apt-get install {name}`"),
            (None, None) => "install the system package that holds it, or take a conda package that brings it".to_owned(),
        };
        let said = finding.offer.take().map(|before| format!("{before}; ")).unwrap_or_default();
        Some(finding.offer(format!("{said}{advice}")))
    }
}

#[cfg(test)]
mod tests {
    use super::super::scenes::{problem, scene};
    use super::*;
    use crate::problem::Stage;

    const TEXT: &str = "ImportError: libGL.so.1: cannot open shared object file: No such file or directory";

    #[test]
    fn a_variant_without_windows_or_a_package_of_the_system() {
        let found = scene(&["opencv-python==4.8.0.76"], &[]).ask(&SystemLibrary, &problem(Stage::Imports, Some("cv2"), TEXT)).unwrap();
        assert_eq!(found.ways, [[Change::Remove("opencv-python".into()), Change::Add("opencv-python-headless==4.8.0.76".into())]]);
        assert!(found.offer.unwrap().contains("libgl1"));
        let mut windows = scene(&["opencv-python"], &[]);
        windows.evidence.uses.insert("cv2.imshow".into(), "x.py:1".into());
        assert!(windows.ask(&SystemLibrary, &problem(Stage::Imports, Some("cv2"), TEXT)).unwrap().ways.is_empty());
        let text = "OSError: PortAudio library not found";
        assert!(scene(&[], &[]).ask(&SystemLibrary, &problem(Stage::Imports, None, text)).is_some());
    }
}
