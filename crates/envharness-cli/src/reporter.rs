//! Events on the terminal: a line that changes while something runs, and one past-tense line when it is done.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use envharness_rig::{Event, Reporter};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::printer::Printer;

/// Shows events and notices Ctrl-C.
pub struct TerminalReporter {
    printer: Printer,
    bar: ProgressBar,
    interrupted: Arc<AtomicBool>,
    verbose: bool,
}

impl TerminalReporter {
    /// A reporter; from now on the first Ctrl-C asks for an orderly end and the second ends at once.
    pub fn new(printer: Printer, verbose: bool) -> Self {
        let interrupted = Arc::new(AtomicBool::new(false));
        for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
            let _ = signal_hook::flag::register_conditional_shutdown(signal, 130, Arc::clone(&interrupted));
            let _ = signal_hook::flag::register(signal, Arc::clone(&interrupted));
        }
        let bar =
            ProgressBar::with_draw_target(None, if printer.progress { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() });
        if let Ok(style) = ProgressStyle::with_template("{spinner} {msg} {elapsed}") {
            bar.set_style(style);
        }
        Self { printer, bar, interrupted, verbose }
    }

    /// Takes the changing line away.
    pub fn finish(&self) {
        self.bar.finish_and_clear();
    }
}

impl Reporter for TerminalReporter {
    fn event(&self, event: &Event) {
        tracing::debug!(event = event.name(), "{}", event.text());
        match event {
            Event::Warning { message, hint } => self.bar.suspend(|| self.printer.warning(message, hint.as_deref())),
            Event::Resolved { .. } | Event::Built { .. } | Event::Copied { .. } | Event::LockWritten { .. } => {
                self.bar.suspend(|| self.printer.done(&event.text()));
                if let Event::LockWritten { changes, .. } = event {
                    for change in changes {
                        self.bar.suspend(|| self.printer.note(&format!("  {change}")));
                    }
                }
            }
            Event::Python { .. } | Event::Backend { .. } => self.bar.suspend(|| self.printer.note(&event.text())),
            Event::Created { .. } => {
                if self.verbose {
                    self.printer.note(&event.text());
                }
                self.finish();
            }
            Event::Resolving { .. }
            | Event::Waiting { .. }
            | Event::Building { .. }
            | Event::Downloading { .. }
            | Event::Downloaded { .. }
            | Event::Progress { .. }
            | Event::Imaging { .. }
            | Event::Compiling { .. } => {
                self.bar.set_message(event.text());
                self.bar.enable_steady_tick(Duration::from_millis(100));
            }
        }
    }

    fn interrupted(&self) -> bool {
        self.interrupted.load(Ordering::Relaxed)
    }
}
