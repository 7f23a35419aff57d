//! The thread on which sockets are read: pings are answered there while the caller computes.

use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::runtime::{Builder, Handle, Runtime};

static RUNTIME: Mutex<Option<(u32, Runtime)>> = Mutex::new(None);

/// The place of the runtime.
pub(crate) fn held() -> MutexGuard<'static, Option<(u32, Runtime)>> {
    RUNTIME.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The runtime of this process; a forked child gets its own, since threads do not survive a fork.
pub(crate) fn handle() -> std::io::Result<Handle> {
    let mut held = held();
    let here = std::process::id();
    if let Some((pid, runtime)) = &*held
        && *pid == here
    {
        return Ok(runtime.handle().clone());
    }
    let runtime = Builder::new_multi_thread().worker_threads(1).thread_name("envharness-io").enable_all().build()?;
    let handle = runtime.handle().clone();
    if let Some((_, inherited)) = held.replace((here, runtime)) {
        // Its threads are the parent's; to wait for them would be for ever.
        std::mem::forget(inherited);
    }
    Ok(handle)
}

/// Runs something on the runtime to its end, on a caller's thread that has none.
pub(crate) fn block_on<T>(work: impl Future<Output = T>) -> std::io::Result<T> {
    Ok(handle()?.block_on(work))
}
