//! Sets of versions that resolve and then do not work.

use super::Resolved;

/// A warning and what to do about it.
pub(crate) type Trap = (String, String);

/// numpy 2.0.0 came out on this day; native code built before cannot run against it.
const NUMPY_2: &str = "2024-06-16";
/// Native packages that use numpy without saying so in their metadata.
const SILENT_USERS: [&str; 8] = ["torch", "torchvision", "torchaudio", "tensorflow", "jaxlib", "opencv-python", "box2d-py", "ale-py"];

/// Finds the traps in a resolution.
pub(super) fn find(resolved: &[Resolved]) -> Vec<Trap> {
    let numpy = resolved.iter().find(|r| r.package.name == "numpy");
    let Some(numpy) = numpy.filter(|n| n.package.version.as_deref().is_some_and(|v| !v.starts_with("1.") && !v.starts_with("0."))) else {
        return Vec::new();
    };
    let old: Vec<String> = resolved
        .iter()
        .filter(|r| r.uploaded.as_deref().is_some_and(|date| date < NUMPY_2))
        .filter(|r| r.package.files.iter().any(|file| is_native(&file.name)))
        .filter(|r| numpy.package.via.contains(&r.package.name) || SILENT_USERS.contains(&r.package.name.as_str()))
        .map(|r| format!("{} {}", r.package.name, r.package.version.clone().unwrap_or_default()))
        .collect();
    if old.is_empty() {
        return Vec::new();
    }
    let message = format!(
        "numpy {} beside native code that was built before numpy 2: {}; it may import and then fail",
        numpy.package.version.as_deref().unwrap_or_default(),
        old.join(", ")
    );
    vec![(message, "add `numpy<2` to the pip packages".to_owned())]
}

/// A wheel with compiled code, by its platform tag.
fn is_native(file: &str) -> bool {
    file.ends_with(".whl") && !file.ends_with("-any.whl")
}

#[cfg(test)]
mod tests {
    use envharness_spec::{LockedFile, LockedPackage, LockedSource};

    use super::*;

    fn package(name: &str, version: &str, file: &str, uploaded: &str, via: &[&str]) -> Resolved {
        let file = LockedFile { name: file.into(), size: None, sha256: envharness_spec::Digest::of(name) };
        let package = LockedPackage {
            name: name.into(),
            version: Some(version.into()),
            source: LockedSource::Index("pypi".into()),
            platforms: Vec::new(),
            via: via.iter().map(|v| (*v).to_owned()).collect(),
            files: vec![file],
        };
        Resolved { package, uploaded: Some(uploaded.into()) }
    }

    #[test]
    fn old_native_wheels_beside_numpy_2_are_named_and_nothing_else() {
        let torch = || package("torch", "2.0.1", "torch-2.0.1-cp311-cp311-manylinux1_x86_64.whl", "2023-05-08", &[]);
        let pure = || package("gymnasium", "0.29.1", "gymnasium-0.29.1-py3-none-any.whl", "2023-08-21", &[]);
        let numpy = |v| package("numpy", v, "numpy-cp311.whl", "2026-01-01", &["gymnasium"]);
        let traps = find(&[torch(), pure(), numpy("2.4.6")]);
        assert_eq!(traps.len(), 1);
        assert!(traps[0].0.contains("torch 2.0.1") && !traps[0].0.contains("gymnasium 0"));
        assert!(find(&[torch(), numpy("1.26.4")]).is_empty());
    }
}
