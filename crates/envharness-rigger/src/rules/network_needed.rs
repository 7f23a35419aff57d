//! `network-needed`: the task fetches something while it runs. Said, not mended.

use super::{Finding, Rule, Scene};
use crate::problem::{Problem, Stage};

pub(super) struct NetworkNeeded;

const SIGNS: [&str; 9] = [
    "socket.gaierror",
    "Temporary failure in name resolution",
    "Name or service not known",
    "urllib.error.URLError",
    "requests.exceptions.ConnectionError",
    "requests.exceptions.ProxyError",
    "httpx.ConnectError",
    "MaxRetryError",
    "ConnectionRefusedError",
];

impl Rule for NetworkNeeded {
    fn name(&self) -> &'static str {
        "network-needed"
    }

    fn find(&self, problem: &Problem, _: Scene<'_>) -> Option<Finding> {
        if problem.stage < Stage::Imports {
            return None;
        }
        let sign = SIGNS.iter().find(|sign| problem.text.contains(**sign))?;
        let finding =
            Finding::new(self.name(), format!("the task reaches for the network while it runs, and does not get through: {sign}"));
        Some(finding.offer(if *sign == "ConnectionRefusedError" {
            "start the service that it talks to first"
        } else {
            "fetch what it needs beforehand, or run it where that host can be reached"
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::super::scenes::{problem, scene};
    use super::*;

    #[test]
    fn it_is_said() {
        let found = scene(&[], &[]).ask(&NetworkNeeded, &problem(Stage::Check, None, "urllib.error.URLError: <urlopen error>")).unwrap();
        assert!(found.ways.is_empty() && found.offer.unwrap().contains("beforehand"));
        assert!(scene(&[], &[]).ask(&NetworkNeeded, &problem(Stage::Lock, None, "socket.gaierror")).is_none());
    }
}
