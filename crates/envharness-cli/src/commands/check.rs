//! `check`: what is wrong with a spec, and its normal form.

use serde_json::json;

use super::{Ended, Session};
use crate::args::CheckArgs;
use crate::exit;

pub(super) fn run(session: &Session, args: &CheckArgs) -> Ended {
    let spec = session.spec(args.spec.as_deref())?;
    if session.printer.is_json() {
        let path = session.rig.lock_path(&spec);
        session.printer.json(&json!({ "schema": 1, "digest": spec.digest().to_string(), "spec": spec.canonical(), "lock": path }));
    } else {
        session.printer.data(spec.to_yaml().trim_end());
        session.printer.done(&format!("`{}` is a good spec ({})", spec.name, spec.digest()));
    }
    Ok(exit::OK)
}
