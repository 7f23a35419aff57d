//! Limits of a context: sizes, counts and time-outs.

use std::time::Duration;

/// What a context may use; `None` means no limit.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Resources {
    /// CPU cores, fractions allowed.
    pub cpus: Option<f64>,
    /// Memory in bytes.
    pub memory: Option<u64>,
    /// Processes and threads.
    pub pids: Option<u64>,
    /// Disk space of the context's folder in bytes.
    pub disk: Option<u64>,
    /// GPUs.
    pub gpu: Option<Gpu>,
    /// Time-outs.
    pub timeouts: Timeouts,
}

/// The GPUs of a context.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gpu {
    /// GPUs are hidden (`gpu: false` or `0`).
    None,
    /// Whatever is there, one at least (`gpu: true`).
    Any,
    /// This many.
    Count(u32),
}

/// Time-outs of a context; `None` means no end.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Timeouts {
    /// Creating the context, resolving and installing included.
    pub create: Option<Duration>,
    /// One command or call.
    pub run: Option<Duration>,
    /// A command that prints nothing.
    pub no_output: Option<Duration>,
    /// A context that nobody uses, before `gc` removes it.
    pub idle: Option<Duration>,
}

const UNITS: [(&str, u64); 5] = [("T", 1 << 40), ("G", 1 << 30), ("M", 1 << 20), ("K", 1 << 10), ("", 1)];

/// Reads `8G`, `512MiB`, `1.5 gb` or a number of bytes; units are powers of 1024, as in Docker.
pub fn parse_bytes(text: &str) -> Option<u64> {
    let text = text.trim();
    let split = text.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let number: f64 = number.parse().ok()?;
    let unit = unit.trim().to_ascii_uppercase();
    let unit = unit.strip_suffix("IB").or_else(|| unit.strip_suffix('B')).unwrap_or(&unit);
    let factor = UNITS.iter().find(|(name, _)| *name == unit)?.1;
    let bytes = number * factor as f64;
    (bytes.is_finite() && (0.0..1e18).contains(&bytes)).then_some(bytes as u64)
}

/// Writes bytes in the largest unit that divides them.
pub fn format_bytes(bytes: u64) -> String {
    let (unit, factor) = UNITS.iter().find(|(_, factor)| bytes >= *factor && bytes.is_multiple_of(*factor)).unwrap_or(&("", 1));
    format!("{}{unit}", bytes / factor)
}

/// Bytes for a person.
pub fn human_bytes(bytes: u64) -> String {
    let mut value = bytes as f64;
    for unit in ["B", "KiB", "MiB", "GiB"] {
        if value < 1024.0 {
            return if unit == "B" { format!("{value:.0} {unit}") } else { format!("{value:.1} {unit}") };
        }
        value /= 1024.0;
    }
    format!("{value:.1} TiB")
}

/// Reads `30s`, `5m`, `2h`, `1d`, `250ms`, `1h30m` or a number of seconds.
pub fn parse_duration(text: &str) -> Option<Duration> {
    let text = text.trim();
    if let Ok(seconds) = text.parse::<f64>() {
        return Duration::try_from_secs_f64(seconds).ok();
    }
    let mut total = 0.0;
    let mut rest = text;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !(c.is_ascii_digit() || c == '.'))?;
        let number: f64 = rest[..digits].parse().ok()?;
        rest = &rest[digits..];
        let end = rest.find(|c: char| c.is_ascii_digit()).unwrap_or(rest.len());
        let factor = match rest[..end].trim() {
            "ms" => 0.001,
            "s" | "sec" => 1.0,
            "m" | "min" => 60.0,
            "h" => 3_600.0,
            "d" => 86_400.0,
            _ => return None,
        };
        total += number * factor;
        rest = rest[end..].trim_start();
    }
    (!text.is_empty()).then(|| Duration::try_from_secs_f64(total).ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_powers_of_1024_and_survive_a_round_trip() {
        for (text, bytes) in [("8G", 8 << 30), ("512MiB", 512 << 20), ("1.5gb", 3 << 29), ("1024", 1024), ("0", 0)] {
            assert_eq!(parse_bytes(text), Some(bytes), "{text}");
            assert_eq!(parse_bytes(&format_bytes(bytes)), Some(bytes));
        }
        for bad in ["", "G", "8X", "-1", "8 G G", "1e400"] {
            assert_eq!(parse_bytes(bad), None, "{bad}");
        }
    }

    #[test]
    fn durations_take_units_and_plain_seconds() {
        for (text, millis) in [("30s", 30_000), ("1h30m", 5_400_000), ("250ms", 250), ("2.5", 2_500), ("1d", 86_400_000)] {
            assert_eq!(parse_duration(text), Some(Duration::from_millis(millis)), "{text}");
        }
        for bad in ["", "s", "5 weeks", "-1", "5m3"] {
            assert_eq!(parse_duration(bad), None, "{bad}");
        }
    }
}
