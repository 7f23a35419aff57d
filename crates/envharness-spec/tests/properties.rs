//! Properties of the readers and printers, on generated input.

use envharness_spec::lock::Inputs;
use envharness_spec::source::{parse_json, parse_toml, parse_yaml};
use envharness_spec::{
    Backend, Digest, Format, Lock, LockedFile, LockedImage, LockedPackage, LockedPython, LockedSource, NoFiles, Platform, Requirement, Spec,
};
use proptest::prelude::*;

fn name() -> impl Strategy<Value = String> {
    "[a-z][a-z0-9]{0,8}(-[a-z0-9]{1,4})?"
}

fn text() -> impl Strategy<Value = String> {
    // Everything but what no file holds.
    any::<String>().prop_map(|text| text.replace('\0', ""))
}

fn source() -> impl Strategy<Value = LockedSource> {
    prop_oneof![
        name().prop_map(LockedSource::Index),
        text().prop_map(LockedSource::Url),
        (text(), "[0-9a-f]{40}", proptest::option::of(text())).prop_map(|(url, commit, subdirectory)| LockedSource::Git {
            url,
            commit,
            subdirectory
        }),
        (text(), text(), any::<bool>()).prop_map(|(path, content, editable)| LockedSource::Path {
            path,
            digest: Digest::of(content),
            editable
        }),
        Just(LockedSource::Host),
    ]
}

fn package() -> impl Strategy<Value = LockedPackage> {
    let file = (text(), proptest::option::of(0_u64..1 << 50), text());
    let file = file.prop_map(|(name, size, content)| LockedFile { name, size, sha256: Digest::of(content) });
    (
        name(),
        proptest::option::of("[0-9]{1,3}\\.[0-9]{1,3}"),
        source(),
        prop::collection::vec(file, 0..3),
        prop::collection::vec(text(), 0..3),
    )
        .prop_map(|(name, version, source, mut files, via)| {
            files.sort();
            LockedPackage { name, version, source, platforms: Vec::new(), via, files }
        })
}

fn lock() -> impl Strategy<Value = Lock> {
    let image = (text(), proptest::option::of("[a-z]{1,5}@sha256:[0-9a-f]{4}"), "[a-z0-9 .]{0,10}", "(/[a-z0-9]{1,5}){0,3}").prop_map(
        |(name, pull, libc, python)| LockedImage {
            id: Digest::of(&name).to_string(),
            context: pull.as_ref().map(Digest::of),
            name,
            pull,
            libc,
            python,
        },
    );
    let lists = prop::collection::btree_map("[a-z_]{1,10}", prop::collection::vec(text(), 0..3), 0..4);
    (prop::collection::vec(package(), 0..6), text(), lists, proptest::option::of(image)).prop_map(
        |(mut packages, reason, mut lists, image)| {
            packages.sort_by(|a, b| (&a.name, &a.version, &a.platforms).cmp(&(&b.name, &b.version, &b.platforms)));
            lists.remove("digest");
            Lock {
                spec: Digest::of("spec"),
                backend: Backend::Venv,
                python: LockedPython { version: "3.11.7".into(), implementation: "cpython".into(), reason },
                platforms: vec![Platform::parse("linux-x86_64").unwrap()],
                inputs: Inputs { digest: Some(Digest::of("inputs")), lists },
                image,
                packages,
            }
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn readers_never_panic(text in any::<String>()) {
        let _ = parse_yaml(&text, "x");
        let _ = parse_json(&text, "x");
        let _ = parse_toml(&text, "x");
        for format in [Format::Requirements, Format::Pyproject, Format::Script, Format::Pylock, Format::EnvironmentYml] {
            let _ = Spec::parse(&text, format, "x");
        }
        let _ = Lock::parse(&text);
        let _ = Requirement::parse(&text);
    }

    #[test]
    fn option_lines_never_panic(line in "-[a-z\u{11bc0}é]{0,3}[ =]?\\PC{0,8}") {
        let _ = Spec::parse(&line, Format::Requirements, "x");
    }

    #[test]
    fn text_that_looks_like_a_spec_never_panics(lines in prop::collection::vec("[ ]{0,6}(name|deps|python|environment|pip|-|&a|\\*a|<<)?[:]?[ ]?[a-z0-9\\[\\]{}*&<'\"=,.|>-]{0,12}", 0..12)) {
        let _ = Spec::parse(&lines.join("\n"), Format::Yaml, "x");
    }

    #[test]
    fn a_lock_is_what_it_prints(lock in lock()) {
        let text = lock.to_string();
        let again = Lock::parse(&text).map_err(|e| TestCaseError::fail(format!("{e}\n{text}")))?;
        prop_assert_eq!(&again, &lock);
        prop_assert_eq!(again.to_string(), text);
        prop_assert_eq!(again.digest(), lock.digest());
    }

    #[test]
    fn a_requirement_is_its_canonical_text(name in "[A-Za-z][A-Za-z0-9._-]{0,8}[A-Za-z0-9]", extra in "[A-Za-z][a-z0-9]{0,5}", minor in 0_u32..99, marked in any::<bool>()) {
        let marker = if marked { " ; python_version >= '3.8'" } else { "" };
        let first = Requirement::parse(&format!("{name}[{extra}] >= 1.{minor}, <2{marker}")).unwrap();
        let again = Requirement::parse(&first.to_string()).unwrap();
        prop_assert_eq!(again, first);
    }

    #[test]
    fn a_spec_written_as_yaml_is_the_same_spec(
        name in "[a-z][a-z0-9_.-]{0,20}[a-z0-9]",
        description in text(),
        variables in prop::collection::btree_map("[A-Z_][A-Z0-9_]{0,8}", text(), 0..4),
        deps in prop::collection::btree_set(name(), 0..4),
        memory in proptest::option::of(1_u64..1 << 45),
    ) {
        let mut mapping = serde_json::json!({ "name": name, "description": description, "env_vars": variables, "deps": deps });
        if let Some(memory) = memory {
            mapping["resources"] = serde_json::json!({ "memory": memory });
        }
        let spec = Spec::from_mapping(&mapping.to_string(), &NoFiles).map_err(|e| TestCaseError::fail(e.to_string()))?;
        let yaml = spec.to_yaml();
        let again = Spec::parse(&yaml, Format::Yaml, "x.yaml").map_err(|e| TestCaseError::fail(format!("{e}\n{yaml}")))?;
        prop_assert_eq!(again.canonical(), spec.canonical(), "{}", yaml);
        prop_assert_eq!(again.digest(), spec.digest());
    }
}
