//! `export`.

use envharness_spec::Platform;

use super::{Ended, Session, lock_request};
use crate::args::{ExportArgs, ExportFormat};
use crate::exit;

pub(super) fn run(session: &Session, args: &ExportArgs) -> Ended {
    let spec = session.spec(args.spec.as_deref())?;
    let text = match args.format {
        ExportFormat::Spec => spec.to_yaml(),
        ExportFormat::Requirements => {
            session.rig.lock(&spec, &lock_request(&args.lock), &session.reporter)?.to_requirements(&Platform::current())
        }
        ExportFormat::Pylock => {
            let lock = session.rig.lock(&spec, &lock_request(&args.lock), &session.reporter)?;
            session.rig.export_pylock(&spec, &lock, &session.reporter)?
        }
        ExportFormat::Environment => {
            let lock = session.rig.lock(&spec, &lock_request(&args.lock), &session.reporter)?;
            lock.to_environment_yml(&spec.name, &session.rig.channels(&spec), &Platform::current())
        }
        ExportFormat::Explicit => {
            let lock = session.rig.lock(&spec, &lock_request(&args.lock), &session.reporter)?;
            session.rig.export_explicit(&spec, &lock, &session.reporter)?
        }
        ExportFormat::Pixi => {
            let lock = session.rig.lock(&spec, &lock_request(&args.lock), &session.reporter)?;
            session.rig.export_pixi(&spec, &lock, &session.reporter)?
        }
        ExportFormat::CondaLock => {
            let lock = session.rig.lock(&spec, &lock_request(&args.lock), &session.reporter)?;
            session.rig.export_conda_lock(&spec, &lock, &session.reporter)?
        }
    };
    session.reporter.finish();
    match &args.output {
        Some(path) => {
            envharness_store::write_atomic(path, text.as_bytes()).map_err(envharness_rig::RigError::from)?;
            session.printer.done(&format!("Wrote {}", path.display()));
        }
        None => session.printer.bytes(text.as_bytes()),
    }
    Ok(exit::OK)
}
