use super::*;
use crate::evidence::{Dated, Declared, Import, Kind, PythonBound, Weight};
use crate::plan::Origin;

fn world() -> World {
    World { pythons: ["3.11", "3.8", "3.9", "3.10", "3.12", "3.13"].map(Into::into).into(), today: "2026-12-01".into(), ..World::default() }
}

fn evidence() -> Evidence {
    Evidence::new(Kind::Script, "train", "/x".into())
}

fn import(module: &str, need: Need) -> Import {
    Import { module: module.into(), names: Vec::new(), place: "train.py:3".into(), need, group: None }
}

fn decided(evidence: &Evidence) -> Decision {
    decide(evidence, &world(), &Wishes::default()).unwrap()
}

fn specs(decision: &Decision) -> Vec<String> {
    decision.plan.spec().pip.iter().map(ToString::to_string).collect()
}

#[test]
fn imports_become_distributions_with_reasons() {
    let mut evidence = evidence();
    evidence.imports = vec![
        import("sklearn.linear_model", Need::Required),
        import("yaml", Need::Lazy),
        import("wandb", Need::Optional),
        import("cv2", Need::Required),
    ];
    let decision = decided(&evidence);
    assert_eq!(specs(&decision), ["opencv-python", "pyyaml", "scikit-learn"]);
    let reason = &decision.plan.packages["opencv-python"].reason;
    assert!(reason.contains("train.py:3") && reason.contains("opencv-python-headless"), "{reason}");
    assert!(decision.remarks.iter().any(|remark| remark.contains("wandb")), "{:?}", decision.remarks);
    assert_eq!(decision.plan.python.as_ref().map(|p| p.value.as_str()), Some("3.12"));
}

#[test]
fn unknown_modules_are_proved_or_refused() {
    let mut evidence = evidence();
    evidence.imports = vec![import("numpyy", Need::Required), import("somethingrare", Need::Required)];
    let decision = decided(&evidence);
    assert_eq!(specs(&decision), ["somethingrare"]);
    assert_eq!(decision.plan.packages["somethingrare"].origin, Origin::OwnName);
    assert_eq!(decision.missing[0].module, "numpyy");
    assert!(decision.missing[0].why.contains("numpy"));
}

#[test]
fn declarations_count_before_the_table_and_squatters_are_refused() {
    let mut evidence = evidence();
    let declared = |text: &str| Declared { text: text.into(), place: "requirements.txt:1".into(), weight: Weight::Declared };
    evidence.declared = vec![declared("sklearn"), declared("opencv-python-headless==4.8.0.76"), declared("gym[atari]==0.21")];
    evidence.imports = vec![import("cv2", Need::Required), import("sklearn", Need::Required), import("gym", Need::Required)];
    let decision = decided(&evidence);
    assert_eq!(specs(&decision), ["gym[atari]==0.21", "opencv-python-headless==4.8.0.76", "scikit-learn"]);
    assert!(decision.remarks.iter().any(|remark| remark.contains("refused")));
}

#[test]
fn a_readme_gives_versions_and_no_packages() {
    let mut evidence = evidence();
    let mentioned = |text: &str| Declared { text: text.into(), place: "README.md:9".into(), weight: Weight::Mentioned };
    evidence.declared = vec![mentioned("numpy==1.21"), mentioned("unrelated")];
    evidence.imports = vec![import("numpy", Need::Required)];
    assert_eq!(specs(&decided(&evidence)), ["numpy==1.21"]);
}

#[test]
fn one_of_a_group_is_enough() {
    let mut evidence = evidence();
    let member = |module: &str| Import { group: Some("1".into()), ..import(module, Need::Optional) };
    evidence.imports = vec![member("gymnasium"), member("gym")];
    assert_eq!(specs(&decided(&evidence)), ["gymnasium"]);
    evidence.imports = vec![member("ujson"), member("json5x")];
    assert!(specs(&decided(&evidence)).is_empty());
}

#[test]
fn names_that_are_gone_bound_versions() {
    let mut evidence = evidence();
    evidence.imports = vec![import("numpy", Need::Required), import("scipy.integrate", Need::Required)];
    evidence.imports[1].names = vec!["simps".into()];
    evidence.uses.insert("numpy.float".into(), "train.py:7".into());
    let decision = decided(&evidence);
    assert_eq!(specs(&decision), ["numpy<1.24", "scipy<1.14"]);
    assert!(decision.plan.packages["numpy"].reason.contains("train.py:7 uses numpy.float"));
}

#[test]
fn the_day_chooses_versions_and_python() {
    let mut evidence = evidence();
    evidence.dates = vec![Dated { day: "2022-06-01".into(), why: "the last commit".into(), firm: true }];
    let decision = decided(&evidence);
    assert_eq!(decision.plan.exclude_newer.as_ref().map(|d| d.value.as_str()), Some("2022-06-02"));
    assert_eq!(decision.plan.python.as_ref().map(|p| p.value.as_str()), Some("3.10"));
    evidence.dates[0].firm = false;
    assert_eq!(decided(&evidence).plan.exclude_newer, None);
    evidence.dates = vec![Dated { day: "2026-10-01".into(), why: "the last commit".into(), firm: true }];
    assert_eq!(decided(&evidence).plan.exclude_newer, None);
}

#[test]
fn bounds_of_python_hold_together_or_are_told() {
    let mut evidence = evidence();
    let bound = |specifier: &str, firm: bool| PythonBound { specifier: specifier.into(), why: format!("because of {specifier}"), firm };
    evidence.pythons = vec![bound(">=3.10", true), bound("<3.12", true), bound("==3.10.*", false)];
    let decision = decided(&evidence);
    let python = decision.plan.python.unwrap();
    assert_eq!(python.value, "3.10");
    assert!(python.reason.contains("because of >=3.10") && python.reason.contains("because of <3.12"), "{}", python.reason);
    evidence.pythons = vec![bound(">=3.12", true), bound("<3.12", true)];
    let error = decide(&evidence, &world(), &Wishes::default()).unwrap_err();
    assert!(error.what.contains(">=3.12") && error.what.contains("<3.12") && error.hint.is_some());
}
