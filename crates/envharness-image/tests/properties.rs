//! What holds for any packages and any tree.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};

use envharness_image::plan::{Item, LARGE, MOST_LAYERS, bucket, plan};
use envharness_image::tree::{self, Modes};
use envharness_image::{Compression, Stamp, open_tar, pack};
use proptest::collection::vec;
use proptest::prelude::*;

fn items() -> impl Strategy<Value = Vec<Item>> {
    let one = ("[a-z]{1,6}", prop_oneof![0..LARGE, LARGE..LARGE * 40]).prop_map(|(name, bytes)| Item { name, bytes });
    vec(one, 0..120)
}

proptest! {
    #[test]
    fn a_plan_has_every_package_once_and_few_layers(items in items()) {
        let planned = plan(&items);
        let mut all: Vec<&String> = planned.iter().flat_map(|layer| &layer.packages).collect();
        all.sort();
        let names: BTreeSet<&String> = items.iter().map(|item| &item.name).collect();
        prop_assert_eq!(all, names.into_iter().collect::<Vec<_>>());
        prop_assert!(planned.len() < MOST_LAYERS);
        prop_assert!(planned.iter().all(|layer| !layer.packages.is_empty()));
        let mut turned = items;
        turned.reverse();
        prop_assert_eq!(plan(&turned), planned);
    }

    #[test]
    fn another_small_package_touches_its_bucket_alone(items in items(), name in "[A-Z]{1,6}") {
        let before = plan(&items);
        let mut more = items;
        more.push(Item { name: name.clone(), bytes: 1 });
        let after = plan(&more);
        let title = format!("packages {}", bucket(&name));
        for layer in after.iter().filter(|layer| layer.title != title) {
            prop_assert!(before.contains(layer));
        }
        prop_assert_eq!(after.iter().filter(|layer| layer.packages.contains(&name)).count(), 1);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn the_same_content_gives_the_same_bytes(
        files in vec(("[a-z]{1,3}(/[a-z]{60,70}){0,2}", vec(any::<u8>(), 0..3000), any::<bool>()), 1..20),
        zstd in any::<bool>(),
    ) {
        let folder = tempfile::tempdir().expect("a folder");
        let mut content = std::collections::BTreeMap::new();
        for (name, bytes, runs) in &files {
            content.insert(format!("{name}/file"), (bytes.clone(), *runs));
        }
        // Written in either order, with other times, modes and owners of the same meaning, and as a hard link.
        let write = |root: &str, names: Vec<&String>, modes: [u32; 2]| {
            let root = folder.path().join(root);
            for name in names {
                let path = root.join(name);
                fs::create_dir_all(path.parent().expect("a parent")).expect("made");
                let (bytes, runs) = &content[name];
                fs::write(&path, bytes).expect("written");
                fs::set_permissions(&path, fs::Permissions::from_mode(modes[usize::from(*runs)])).expect("set");
            }
            symlink("a/file", root.join("link")).expect("linked");
            root
        };
        let one = write("one", content.keys().collect(), [0o644, 0o755]);
        let two = write("two", content.keys().rev().collect(), [0o444, 0o511]);
        let name = content.keys().next().expect("a file");
        fs::hard_link(two.join(name), folder.path().join("other")).expect("linked");
        let compression = if zstd { Compression::Zstd } else { Compression::Gzip };
        let stamp = Stamp { mtime: 7, uid: 0, gid: 1000 };
        let read = |root| tree::read(root, "/opt/x/", Modes::Normal).expect("read");
        let packed = |root, to: &str| pack(&read(root), stamp, compression, &folder.path().join(to)).expect("packed");
        prop_assert_eq!(tree::listing(&read(&one)), tree::listing(&read(&two)));
        prop_assert_eq!(packed(&one, "a"), packed(&two, "b"));
        prop_assert_eq!(fs::read(folder.path().join("a")).expect("read"), fs::read(folder.path().join("b")).expect("read"));
        // And it is what was put in.
        let mut found = std::collections::BTreeMap::new();
        for entry in tar::Archive::new(open_tar(&folder.path().join("a")).expect("opened")).entries().expect("a tar") {
            let mut entry = entry.expect("an entry");
            prop_assert_eq!((entry.header().mtime().ok(), entry.header().gid().ok()), (Some(7), Some(1000)));
            let name = entry.path().expect("a path").to_string_lossy().into_owned();
            if entry.header().entry_type().is_file() {
                let mut bytes = Vec::new();
                std::io::Read::read_to_end(&mut entry, &mut bytes).expect("read");
                found.insert(name.trim_start_matches("opt/x/").to_owned(), (bytes, entry.header().mode().expect("a mode") == 0o755));
            }
        }
        prop_assert_eq!(found, content);
    }
}
