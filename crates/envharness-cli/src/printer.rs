//! Everything that is printed.

use std::io::{IsTerminal as _, Write as _};
use std::sync::atomic::{AtomicI32, Ordering};

use envharness_rig::RigError;
use serde_json::Value;

use crate::args::{Global, OutputFormat};

/// What is said, and where: data on standard output, all else on standard error.
#[derive(Debug, Clone, Copy)]
pub struct Printer {
    /// The form of results.
    pub format: OutputFormat,
    quiet: bool,
    /// Whether progress is drawn.
    pub progress: bool,
}

const RED: &str = "\u{1b}[1;31m";
const YELLOW: &str = "\u{1b}[1;33m";
const GREEN: &str = "\u{1b}[1;32m";
const CYAN: &str = "\u{1b}[36m";
const RESET: &str = "\u{1b}[0m";

/// The error number of a failed write of data. A reader that went away (`| head`) is no failure.
static FAILED: AtomicI32 = AtomicI32::new(0);

fn note_failure(result: std::io::Result<()>) {
    if let Err(error) = result
        && error.kind() != std::io::ErrorKind::BrokenPipe
    {
        FAILED.store(error.raw_os_error().unwrap_or(5), Ordering::Relaxed);
    }
}

impl Printer {
    /// Decides by the flags and by what the streams are.
    pub fn new(global: &Global) -> Self {
        let terminal = std::io::stderr().is_terminal();
        Self { format: global.output_format, quiet: global.quiet, progress: terminal && !global.quiet && !global.no_progress }
    }

    /// A line of data.
    pub fn data(&self, line: &str) {
        let mut out = std::io::stdout().lock();
        note_failure(writeln!(out, "{line}"));
    }

    /// Bytes of data.
    pub fn bytes(&self, bytes: &[u8]) {
        let mut out = std::io::stdout().lock();
        note_failure(out.write_all(bytes).and_then(|()| out.flush()));
    }

    /// What went wrong when data was written, if anything did.
    pub fn write_failure() -> Option<std::io::Error> {
        let flushed = std::io::stdout().lock().flush();
        note_failure(flushed);
        let code = FAILED.load(Ordering::Relaxed);
        (code != 0).then(|| std::io::Error::from_raw_os_error(code))
    }

    /// Bytes for standard error.
    pub fn error_bytes(&self, bytes: &[u8]) {
        let mut out = std::io::stderr().lock();
        let _ = out.write_all(bytes).and_then(|()| out.flush());
    }

    /// A document: one line as `jsonl`, else indented.
    pub fn json(&self, value: &Value) {
        let text = if self.format == OutputFormat::Jsonl { value.to_string() } else { format!("{value:#}") };
        self.data(&text);
    }

    /// Whether results are for a program.
    pub fn is_json(&self) -> bool {
        self.format != OutputFormat::Text
    }

    /// What was done, in one line.
    pub fn done(&self, line: &str) {
        if !self.quiet {
            anstream::eprintln!("{GREEN}{line}{RESET}");
        }
    }

    /// A remark.
    pub fn note(&self, line: &str) {
        if !self.quiet {
            anstream::eprintln!("{line}");
        }
    }

    /// Something a person should know; said even when quiet is asked for, since it is about the result.
    pub fn warning(&self, message: &str, hint: Option<&str>) {
        anstream::eprintln!("{YELLOW}warning:{RESET} {message}");
        if let Some(hint) = hint {
            anstream::eprintln!("{CYAN}hint:{RESET} {hint}");
        }
    }

    /// An error of the rig with its causes, details and hint.
    pub fn rig_error(&self, error: &RigError) {
        self.error(error, &error.details(), error.hint().as_deref());
    }

    /// Any error.
    pub fn error(&self, error: &dyn std::error::Error, details: &[String], hint: Option<&str>) {
        anstream::eprintln!("{RED}error:{RESET} {error}");
        let mut said = error.to_string();
        let mut cause = error.source();
        while let Some(error) = cause {
            let text = error.to_string();
            if !said.contains(&text) {
                anstream::eprintln!("  caused by: {text}");
                said = text;
            }
            cause = error.source();
        }
        for line in details {
            anstream::eprintln!("  {line}");
        }
        if let Some(hint) = hint {
            anstream::eprintln!("\n{CYAN}hint:{RESET} {hint}");
        }
    }

    /// A plain table: upper-case heads, no boxes.
    pub fn table(&self, heads: &[&str], rows: &[Vec<String>]) {
        let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).chain([heads[column].len()]).max().unwrap_or(0);
        let widths: Vec<usize> = (0..heads.len()).map(width).collect();
        let line = |cells: &[String]| {
            let padded: Vec<String> = cells.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
            padded.join("  ").trim_end().to_owned()
        };
        self.data(&line(&heads.iter().map(|h| (*h).to_owned()).collect::<Vec<_>>()));
        for row in rows {
            self.data(&line(row));
        }
    }

    /// Asks on a terminal; elsewhere the answer is no.
    pub fn confirm(&self, question: &str) -> bool {
        if !std::io::stdin().is_terminal() {
            return false;
        }
        anstream::eprint!("{question} [y/N] ");
        let mut answer = String::new();
        std::io::stdin().read_line(&mut answer).is_ok() && matches!(answer.trim(), "y" | "Y" | "yes")
    }
}

/// An age for a person.
pub fn human_age(seconds: f64) -> String {
    match seconds {
        s if s < 60.0 => format!("{s:.0}s"),
        s if s < 3_600.0 => format!("{:.0}m", s / 60.0),
        s if s < 86_400.0 => format!("{:.0}h", s / 3_600.0),
        s => format!("{:.0}d", s / 86_400.0),
    }
}
