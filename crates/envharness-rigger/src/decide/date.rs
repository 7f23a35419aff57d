//! Of which day the versions are.

use crate::evidence::Evidence;
use crate::plan::Reasoned;
use crate::world::World;

/// Nothing older can be rigged with the Pythons that are supported.
const OLDEST: &str = "2020-06-01";

/// The day, where the task has one that binds: stated, or of its last commit when that is a while ago.
pub(super) fn choose(evidence: &Evidence, world: &World, wish: Option<&str>) -> Option<Reasoned<String>> {
    match wish {
        Some("none") => return None,
        Some(day) => return Some(Reasoned { value: day.to_owned(), reason: "asked for by --date".into() }),
        None => {}
    }
    if let Some(day) = &evidence.base.exclude_newer {
        return Some(Reasoned { value: day.clone(), reason: "as the spec has it".into() });
    }
    let firm = evidence.dates.iter().filter(|date| date.firm && plausible(&date.day)).max_by(|a, b| a.day.cmp(&b.day))?;
    (year_of_age(&firm.day, &world.today) >= 1.0).then(|| Reasoned { value: after(&firm.day), reason: firm.why.clone() })
}

fn plausible(day: &str) -> bool {
    day.len() == 10 && day > OLDEST
}

/// The day after, so that what was uploaded on the day itself is seen.
fn after(day: &str) -> String {
    let mut parts = day.splitn(3, '-').map(|part| part.parse::<u32>().unwrap_or(1));
    let (year, month, date) = (parts.next().unwrap_or(1), parts.next().unwrap_or(1), parts.next().unwrap_or(1));
    match (month, date) {
        (_, 1..=27) => format!("{year:04}-{month:02}-{:02}", date + 1),
        (12, _) => format!("{:04}-01-01", year + 1),
        _ => format!("{year:04}-{:02}-01", month + 1),
    }
}

/// How many years lie between two days.
pub(crate) fn year_of_age(day: &str, today: &str) -> f64 {
    let number = |text: &str| {
        let mut parts = text.get(..10).unwrap_or(text).splitn(3, '-').map(|part| part.parse::<f64>().unwrap_or(1.0));
        let (year, month, date) = (parts.next().unwrap_or(0.0), parts.next().unwrap_or(1.0), parts.next().unwrap_or(1.0));
        year + (month - 1.0) / 12.0 + (date - 1.0) / 365.0
    };
    number(today) - number(day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_follow_each_other_and_have_an_age() {
        assert_eq!(after("2021-05-03"), "2021-05-04");
        assert_eq!(after("2021-12-31"), "2022-01-01");
        assert_eq!(after("2023-02-28"), "2023-03-01");
        assert!((year_of_age("2021-05-03", "2023-05-03") - 2.0).abs() < 0.01);
    }
}
