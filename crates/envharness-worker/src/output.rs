//! What processes print past Python's own streams: logged, and the last of it kept.

use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex};

use tokio::io::AsyncReadExt as _;
use tokio::net::unix::pipe::Receiver;

/// What is kept of a worker's output.
const MOST_KEPT: usize = 4096;

/// The last output of a process.
#[derive(Debug, Clone, Default)]
pub(crate) struct LastOutput(Arc<Mutex<Vec<u8>>>);

impl LastOutput {
    fn push(&self, bytes: &[u8]) {
        let mut kept = self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        kept.extend_from_slice(bytes);
        let over = kept.len().saturating_sub(MOST_KEPT);
        kept.drain(..over);
    }

    /// As text.
    pub(crate) fn text(&self) -> String {
        let kept = self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        String::from_utf8_lossy(&kept).trim().to_owned()
    }
}

/// Reads a pipe to its end, in a task of its own. `who` names the process in the log.
pub(crate) fn follow(pipe: OwnedFd, who: String) -> std::io::Result<LastOutput> {
    let kept = LastOutput::default();
    let mut receiver = Receiver::from_owned_fd(pipe)?;
    let held = kept.clone();
    tokio::spawn(async move {
        let mut buffer = vec![0_u8; 4096];
        let mut line = Vec::new();
        while let Ok(read) = receiver.read(&mut buffer).await {
            if read == 0 {
                break;
            }
            held.push(&buffer[..read]);
            for byte in &buffer[..read] {
                // One endless line is told in pieces.
                if *byte == b'\n' || line.len() >= 16 * 1024 {
                    tell(&who, &line);
                    line.clear();
                }
                if *byte != b'\n' {
                    line.push(*byte);
                }
            }
        }
        tell(&who, &line);
    });
    Ok(kept)
}

fn tell(who: &str, line: &[u8]) {
    if !line.is_empty() {
        tracing::info!(target: "envharness::output", process = who, text = %String::from_utf8_lossy(line).trim_end());
    }
}
