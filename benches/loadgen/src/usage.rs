//! What a server takes: CPU time, memory and threads of its process and of all processes below it, from `/proc`.

use std::collections::{HashMap, HashSet};
use std::fs;

use anyhow::{Result, bail};
use serde_json::{Value, json};

/// One line of `/proc/PID/stat`, as far as it is needed.
struct Stat {
    parent: u32,
    session: u32,
    /// Ticks in user and kernel mode, with those of children that were waited for.
    ticks: u64,
    threads: u64,
}

/// Resident and proportional memory, in bytes.
#[derive(Clone, Copy, Default)]
pub struct Memory {
    rss: u64,
    pss: u64,
}

/// Memory and threads at one moment.
#[derive(Clone, Copy, Default)]
pub struct Footprint {
    front: Memory,
    tree: Memory,
    threads: u64,
    processes: u64,
}

/// CPU seconds of the process, of all below it, and of those in its session when it leads one (a process that outlived
/// its parent is then still counted). A child that ended is in the time of the one that waited for it. The kernel hands
/// these out in ticks, 10 ms as a rule: at most that much is lost per process.
pub fn cpu(root: u32) -> Result<f64> {
    let ticks: u64 = tree(root)?.values().map(|stat| stat.ticks).sum();
    Ok(ticks as f64 / rustix::param::clock_ticks_per_second() as f64)
}

/// CPU seconds of this process.
pub fn own_cpu() -> f64 {
    stat(std::process::id()).map_or(0.0, |stat| stat.ticks as f64 / rustix::param::clock_ticks_per_second() as f64)
}

/// Memory and threads of the process and of all below it.
pub fn footprint(root: u32) -> Result<Footprint> {
    let mut found = Footprint { front: memory(root), ..Footprint::default() };
    for (pid, stat) in tree(root)? {
        let memory = memory(pid);
        found.tree.rss += memory.rss;
        found.tree.pss += memory.pss;
        found.threads += stat.threads;
        found.processes += 1;
    }
    Ok(found)
}

impl Footprint {
    /// As JSON, in bytes.
    pub fn json(&self) -> Value {
        json!({
            "front_rss": self.front.rss, "front_pss": self.front.pss, "tree_rss": self.tree.rss, "tree_pss": self.tree.pss,
            "threads": self.threads, "processes": self.processes,
        })
    }

    /// The growth since `before`, for each of `count`.
    pub fn each(&self, before: &Footprint, count: usize) -> Value {
        let each = |now: u64, then: u64| (now as f64 - then as f64) / count.max(1) as f64;
        json!({
            "front_rss": each(self.front.rss, before.front.rss), "front_pss": each(self.front.pss, before.front.pss),
            "tree_rss": each(self.tree.rss, before.tree.rss), "tree_pss": each(self.tree.pss, before.tree.pss),
        })
    }
}

fn tree(root: u32) -> Result<HashMap<u32, Stat>> {
    let mut all: HashMap<u32, Stat> = fs::read_dir("/proc")?
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter_map(|pid| Some((pid, stat(pid)?)))
        .collect();
    if !all.contains_key(&root) {
        bail!("process {root} is gone");
    }
    let mut inside = HashSet::from([root]);
    inside.extend(all.iter().filter(|(_, stat)| stat.session == root).map(|(pid, _)| *pid));
    loop {
        let found: Vec<u32> =
            all.iter().filter(|(pid, stat)| !inside.contains(pid) && inside.contains(&stat.parent)).map(|(pid, _)| *pid).collect();
        if found.is_empty() {
            break;
        }
        inside.extend(found);
    }
    all.retain(|pid, _| inside.contains(pid));
    Ok(all)
}

fn stat(pid: u32) -> Option<Stat> {
    parse(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

fn parse(line: &str) -> Option<Stat> {
    // The name is in brackets and may hold anything; what follows the last bracket starts with field 3.
    let fields: Vec<&str> = line.rsplit_once(')')?.1.split_ascii_whitespace().collect();
    let number = |field: usize| fields.get(field - 3)?.parse::<u64>().ok();
    let ticks = number(14)? + number(15)? + number(16)? + number(17)?;
    Some(Stat { parent: u32::try_from(number(4)?).ok()?, session: u32::try_from(number(6)?).ok()?, ticks, threads: number(20)? })
}

fn memory(pid: u32) -> Memory {
    let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap_or_default();
    let bytes = |key: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(key))?;
        Some(line.trim().trim_end_matches("kB").trim().parse::<u64>().ok()? * 1024)
    };
    Memory { rss: bytes("Rss:").unwrap_or(0), pss: bytes("Pss:").unwrap_or(0) }
}

#[cfg(test)]
mod tests {
    use super::{cpu, footprint, parse};

    #[test]
    fn a_name_with_brackets_and_blanks() {
        let stat = parse("7 (a) b (c) S 3 7 5 0 -1 0 0 0 0 0 10 20 30 40 20 0 9 0 100").unwrap();
        assert_eq!((stat.parent, stat.session, stat.ticks, stat.threads), (3, 5, 100, 9));
    }

    #[test]
    fn this_process_has_memory_and_threads() {
        let found = footprint(std::process::id()).unwrap().json();
        assert!(found["front_rss"].as_u64() > Some(0) && found["threads"].as_u64() > Some(0));
        assert!(cpu(std::process::id()).is_ok());
    }
}
