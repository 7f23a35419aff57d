//! `doctor`: what this machine can do, and what to change where it cannot.

use std::os::unix::fs::MetadataExt as _;

use envharness_rig::{RigError, discover};
use envharness_spec::human_bytes;
use serde_json::json;

use super::{Ended, Session};
use crate::exit;

/// One finding.
struct Finding {
    name: &'static str,
    ok: bool,
    /// Whether nothing works without it.
    needed: bool,
    text: String,
    hint: Option<String>,
}

pub(super) fn run(session: &Session) -> Ended {
    let mut findings =
        vec![uv(session), interpreters(session)?, namespaces(session), links(session), disk(session), database(session), gpus(session)];
    findings.extend(["docker", "podman"].map(|kind| engine(session, kind)));
    let failed = findings.iter().any(|finding| finding.needed && !finding.ok);
    if session.printer.is_json() {
        let list: Vec<_> =
            findings.iter().map(|f| json!({ "name": f.name, "ok": f.ok, "needed": f.needed, "text": f.text, "hint": f.hint })).collect();
        session.printer.json(&json!({ "schema": 1, "ok": !failed, "findings": list }));
    } else {
        for finding in &findings {
            let word = match (finding.ok, finding.needed) {
                (true, _) => "ok",
                (false, true) => "FAILED",
                (false, false) => "missing",
            };
            session.printer.data(&format!("{:<12} {word:<8} {}", finding.name, finding.text));
            if let Some(hint) = &finding.hint {
                session.printer.data(&format!("{:<21} hint: {hint}", ""));
            }
        }
    }
    Ok(if failed { exit::FAILED } else { exit::OK })
}

fn uv(session: &Session) -> Finding {
    match session.rig.uv_version() {
        Ok(version) => Finding { name: "uv", ok: true, needed: true, text: version, hint: None },
        Err(error) => Finding { name: "uv", ok: false, needed: true, text: error.to_string(), hint: error.hint() },
    }
}

fn engine(session: &Session, kind: &'static str) -> Finding {
    match session.rig.engine(kind) {
        Ok(text) => Finding { name: kind, ok: true, needed: false, text, hint: None },
        Err(error) => Finding { name: kind, ok: false, needed: false, text: error.to_string(), hint: error.hint() },
    }
}

fn interpreters(session: &Session) -> Result<Finding, RigError> {
    let found = discover(&session.rig.settings, &session.rig.home)?;
    let mut versions: Vec<String> = found.iter().map(|(i, place)| format!("{} ({place})", i.version)).collect();
    versions.dedup();
    let hint = found.is_empty().then(|| "install Python 3.8 or newer, or leave `python_downloads` at `auto`".to_owned());
    Ok(Finding {
        name: "python",
        ok: !found.is_empty(),
        needed: false,
        text: if versions.is_empty() { "none".into() } else { versions.join(", ") },
        hint,
    })
}

fn namespaces(session: &Session) -> Finding {
    match session.rig.namespaces() {
        Ok(()) => {
            Finding { name: "namespaces", ok: true, needed: false, text: "private /tmp and read-only environments".into(), hint: None }
        }
        Err(error) => {
            let apparmor = std::fs::read_to_string("/proc/sys/kernel/apparmor_restrict_unprivileged_userns").is_ok_and(|v| v.trim() == "1");
            let hint = if apparmor {
                "AppArmor forbids user namespaces: `sysctl kernel.apparmor_restrict_unprivileged_userns=0`, or a profile for envharness"
            } else {
                "allow user namespaces (`sysctl user.max_user_namespaces`), or in a container give CAP_SYS_ADMIN"
            };
            let text = format!("refused ({error}): /tmp is the host's, and environments are read-only by mode alone");
            Finding { name: "namespaces", ok: false, needed: false, text, hint: Some(hint.into()) }
        }
    }
}

fn links(session: &Session) -> Finding {
    let home = &session.rig.home;
    let device = |path: &std::path::Path| path.ancestors().find_map(|p| std::fs::metadata(p).ok()).map(|m| m.dev());
    let same = device(home.root()) == device(home.cache());
    let text = if same {
        "store and downloads share a file system"
    } else {
        "store and downloads are on different file systems: files are copied"
    };
    let hint = (!same).then(|| "set ENVHARNESS_CACHE to a folder beside the store".to_owned());
    Finding { name: "links", ok: same, needed: false, text: text.into(), hint }
}

fn disk(session: &Session) -> Finding {
    let free = session.rig.free_space();
    let enough = free.is_none_or(|free| free > 5 << 30);
    let text = free.map_or_else(|| "unknown".into(), |free| format!("{} free in {}", human_bytes(free), session.rig.home.root().display()));
    let hint = (!enough).then(|| "`envharness gc --max-size 0` removes what nobody uses".to_owned());
    Finding { name: "disk", ok: enough, needed: false, text, hint }
}

fn database(session: &Session) -> Finding {
    match session.rig.home.check_database() {
        Ok(faults) if faults.is_empty() => Finding { name: "database", ok: true, needed: true, text: "sound".into(), hint: None },
        Ok(faults) => Finding {
            name: "database",
            ok: false,
            needed: true,
            text: faults.join("; "),
            hint: Some("move state.db away; contexts are lost, environments are found again".into()),
        },
        Err(error) => Finding { name: "database", ok: false, needed: true, text: error.to_string(), hint: error.hint() },
    }
}

fn gpus(session: &Session) -> Finding {
    let count = session.rig.gpus();
    Finding { name: "gpu", ok: count > 0, needed: false, text: format!("{count} device nodes"), hint: None }
}
