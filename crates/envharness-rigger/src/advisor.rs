//! A mind of its own: any program that is handed the evidence and proposes changes.
//!
//! It is started anew for each question, reads one JSON object on its standard input and writes one on its standard output:
//! `{"changes": [{"add": "numpy<2"}], "reason": "why"}`. An empty list says that it knows no way. Its proposals pass the same
//! [gate](crate::gate) as those of rules.

use std::io::{Read as _, Write as _};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::error::RiggerError;
use crate::plan::Change;

/// The longest that an advisor may think.
const PATIENCE: Duration = Duration::from_secs(300);
/// The longest answer.
const MOST: u64 = 1 << 20;

/// A proposal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Proposal {
    /// What to change.
    #[serde(default)]
    pub changes: Vec<Change>,
    /// Why.
    #[serde(default)]
    pub reason: String,
}

/// Asks an advisor.
///
/// # Errors
/// [`RiggerError::Advisor`] when it cannot be started, fails, is silent for too long or answers with something else.
pub fn ask(command: &str, question: &Value, interrupted: &dyn Fn() -> bool) -> Result<Proposal, RiggerError> {
    let failed = |reason: String| RiggerError::Advisor { command: command.to_owned(), reason };
    let words = shlex::split(command).filter(|words| !words.is_empty()).ok_or_else(|| failed("is no command".into()))?;
    let mut child = Command::new(&words[0])
        .args(&words[1..])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|error| failed(format!("cannot be started: {error}")))?;
    // One that answers without reading closes its end; that is its own affair.
    let stdin = child.stdin.take();
    let text = question.to_string();
    let writer = std::thread::spawn(move || {
        if let Some(mut stdin) = stdin {
            let _ = stdin.write_all(text.as_bytes()).and_then(|()| stdin.write_all(b"\n"));
        }
    });
    let stdout = child.stdout.take();
    let reader = std::thread::spawn(move || {
        let mut answer = Vec::new();
        if let Some(stdout) = stdout {
            let _ = stdout.take(MOST).read_to_end(&mut answer);
        }
        answer
    });
    let started = Instant::now();
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) => break status,
            Ok(None) if started.elapsed() > PATIENCE || interrupted() => {
                let _ = child.kill();
                let _ = child.wait();
                return Err(failed(format!("gave no answer in {} s", started.elapsed().as_secs())));
            }
            Ok(None) => std::thread::sleep(Duration::from_millis(20)),
            Err(error) => return Err(failed(format!("cannot be waited for: {error}"))),
        }
    };
    let _ = writer.join();
    let answer = reader.join().unwrap_or_default();
    if !status.success() {
        return Err(failed(format!("failed with {status}")));
    }
    serde_json::from_slice(&answer).map_err(|error| {
        let said = String::from_utf8_lossy(&answer).chars().take(200).collect::<String>();
        failed(format!("answered with something else than a proposal: {error}: {said}"))
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_answer_is_a_proposal() {
        let command = r#"sh -c 'read question; echo "{\"changes\": [{\"add\": \"numpy<2\"}], \"reason\": \"it says so\"}"'"#;
        let proposal = ask(command, &json!({"problems": []}), &|| false).unwrap();
        assert_eq!(proposal.changes, [Change::Add("numpy<2".into())]);
    }

    #[test]
    fn anything_else_is_told() {
        for (command, word) in
            [("false", "failed"), ("echo no", "something else"), ("/no/such/program", "cannot be started"), ("'", "no command")]
        {
            let error = ask(command, &json!({}), &|| false).unwrap_err().to_string();
            assert!(error.contains(word), "{command}: {error}");
        }
        let unknown = ask(r#"echo '{"run": "rm"}'"#, &json!({}), &|| false).unwrap_err().to_string();
        assert!(unknown.contains("run"), "{unknown}");
    }
}
