//! Which package lies in which layer.
//!
//! A large package has a layer of its own; the others share buckets, chosen by a hash of the package's name. So a lock
//! always has the same plan, and a package that changes its version changes one layer.

use std::collections::BTreeMap;

use envharness_spec::Digest;

/// A package that is installed in this many bytes has a layer of its own.
pub const LARGE: u64 = 12 << 20;
/// The most packages with a layer of their own; of more, the largest have one.
pub const MOST_ALONE: usize = 23;
/// Layers that small packages share.
pub const BUCKETS: u32 = 16;
/// The most layers of a plan: those, and one for what belongs to no package.
pub const MOST_LAYERS: usize = MOST_ALONE + BUCKETS as usize + 1;

/// A package and the bytes it takes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Item {
    /// Its name.
    pub name: String,
    /// Its installed size.
    pub bytes: u64,
}

/// One layer of a plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlannedLayer {
    /// What it is called in the image's history.
    pub title: String,
    /// The packages in it, sorted.
    pub packages: Vec<String>,
}

/// The bucket of a small package.
pub fn bucket(name: &str) -> u32 {
    u32::from_str_radix(&Digest::of(name).hex()[..8], 16).unwrap_or(0) % BUCKETS
}

/// Deals packages out to layers: large ones by name, then buckets by number. Empty buckets are left out, and
/// what is named twice is one package.
pub fn plan(items: &[Item]) -> Vec<PlannedLayer> {
    let mut sizes: BTreeMap<&str, u64> = BTreeMap::new();
    for item in items {
        *sizes.entry(&item.name).or_default() += item.bytes;
    }
    let mut items: Vec<Item> = sizes.into_iter().map(|(name, bytes)| Item { name: name.to_owned(), bytes }).collect();
    items.sort_by(|a, b| b.bytes.cmp(&a.bytes).then_with(|| a.name.cmp(&b.name)));
    let alone = items.iter().take(MOST_ALONE).take_while(|item| item.bytes >= LARGE).count();
    let (large, small) = items.split_at(alone);
    let mut out: Vec<PlannedLayer> =
        large.iter().map(|item| PlannedLayer { title: item.name.clone(), packages: vec![item.name.clone()] }).collect();
    out.sort_by(|a, b| a.title.cmp(&b.title));
    for number in 0..BUCKETS {
        let mut packages: Vec<String> = small.iter().map(|item| item.name.clone()).filter(|name| bucket(name) == number).collect();
        packages.sort();
        if !packages.is_empty() {
            out.push(PlannedLayer { title: format!("packages {number}"), packages });
        }
    }
    out
}
