//! The caller's terminal, while it belongs to a command elsewhere.

use std::io::Write as _;
use std::os::fd::AsFd as _;

use rustix::termios::{OptionalActions, Termios, isatty, tcgetattr, tcgetwinsize, tcsetattr};

/// The terminal without its own line editing; as before once it is dropped.
pub(crate) struct Raw(Termios);

impl Raw {
    /// `None` when the standard input is no terminal.
    pub(crate) fn enter() -> Option<Self> {
        let stdin = std::io::stdin();
        if !isatty(&stdin) {
            return None;
        }
        let before = tcgetattr(&stdin).ok()?;
        let mut raw = before.clone();
        raw.make_raw();
        tcsetattr(&stdin, OptionalActions::Now, &raw).ok()?;
        Some(Self(before))
    }

    /// Columns and rows.
    pub(crate) fn size(&self) -> Option<(u16, u16)> {
        tcgetwinsize(std::io::stdin().as_fd()).ok().map(|size| (size.ws_col, size.ws_row))
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        let _ = tcsetattr(std::io::stdin(), OptionalActions::Now, &self.0);
    }
}

/// Passes on what the command shows.
pub(crate) fn show(bytes: &[u8]) {
    let mut out = std::io::stdout().lock();
    let _ = out.write_all(bytes).and_then(|()| out.flush());
}
