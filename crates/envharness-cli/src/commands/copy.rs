//! `cp`: files into and out of a context.

use std::path::Path;
use std::time::Duration;

use envharness_rig::counted;
use envharness_spec::human_bytes;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde_json::json;

use super::{Ended, Session};
use crate::args::CpArgs;
use crate::exit;

pub(super) fn run(session: &Session, args: &CpArgs) -> Ended {
    let target = if session.printer.progress { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
    let bar = ProgressBar::with_draw_target(None, target);
    if let Ok(style) = ProgressStyle::with_template("{spinner} {bytes} {bytes_per_sec} {elapsed}") {
        bar.set_style(style);
    }
    bar.enable_steady_tick(Duration::from_millis(100));
    let mut progress = |bytes| bar.set_position(bytes);
    let moved = match (place(&args.source), place(&args.target)) {
        (None, Some((id, path))) => session.rig.attach(id)?.upload(Path::new(&args.source), Path::new(path), &mut progress)?,
        (Some((id, path)), None) => session.rig.attach(id)?.download(Path::new(path), Path::new(&args.target), &mut progress)?,
        _ => anyhow::bail!("one of the two must be ID:PATH, and the other a path; a path with a colon begins with `./`"),
    };
    bar.finish_and_clear();
    if session.printer.is_json() {
        session.printer.json(&json!({ "schema": 1, "files": moved.files, "bytes": moved.bytes }));
    } else {
        session.printer.done(&format!("Copied {}, {}", counted(moved.files as usize, "file"), human_bytes(moved.bytes)));
    }
    Ok(exit::OK)
}

fn place(text: &str) -> Option<(&str, &str)> {
    text.split_once(':').filter(|(id, path)| !id.is_empty() && !id.contains('/') && !path.is_empty())
}
