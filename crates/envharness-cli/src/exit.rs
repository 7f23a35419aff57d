//! Exit codes: documented, stable.

use envharness_rig::{ErrorKind, RigError};

/// Success.
pub const OK: i32 = 0;
/// An expected failure: a wrong spec, a stale lock, a check that found something.
pub const FAILED: i32 = 1;
/// A wrong command line.
pub const USAGE: i32 = 2;
/// The world outside failed: network, disk, another program, a time-out.
pub const OUTSIDE: i32 = 3;
/// A fault of envharness.
pub const BUG: i32 = 70;
/// `run` and `exec`: the time was over, as `timeout(1)` says it.
pub const TIMED_OUT: i32 = 124;
/// `run` and `exec`: a failure of envharness before the command started; else the command's own code.
pub const NOT_STARTED: i32 = 125;
/// Ctrl-C.
pub const INTERRUPTED: i32 = 130;

/// The code of an error.
pub fn code_of(error: &RigError) -> i32 {
    match error.kind() {
        ErrorKind::Spec | ErrorKind::Lock | ErrorKind::Context | ErrorKind::Transfer | ErrorKind::NotAvailable => FAILED,
        ErrorKind::Outside | ErrorKind::Timeout => OUTSIDE,
        ErrorKind::Interrupted => INTERRUPTED,
    }
}
