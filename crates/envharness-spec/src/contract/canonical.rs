//! One text for one JSON value.

use std::fmt::Write as _;

use serde_json::{Map, Number, Value};

/// The canonical text of a value: equal values have equal texts, whatever wrote them.
///
/// It is RFC 8785 but for one point. No white space; keys sorted by their UTF-16 code units; strings with the
/// fewest escapes; numbers as ECMAScript prints them, so that `1.0` is `1`, `-0.0` is `0` and `1e-7` stays.
/// The one point: whole numbers of up to 64 bits keep all their digits, where the RFC would round them to a
/// double. JSON Schema holds `1` and `1.0` to be the same number, and so does this text.
///
/// ```
/// use envharness_spec::contract::canonical;
/// use serde_json::json;
///
/// assert_eq!(canonical(&json!({"b": [1.0, 1e21], "a": "é\n"})), r#"{"a":"é\n","b":[1,1e+21]}"#);
/// ```
pub fn canonical(value: &Value) -> String {
    let mut out = String::new();
    write_value(&mut out, value);
    out
}

fn write_value(out: &mut String, value: &Value) {
    match value {
        Value::Null => out.push_str("null"),
        Value::Bool(value) => out.push_str(if *value { "true" } else { "false" }),
        Value::Number(value) => write_number(out, value),
        Value::String(value) => write_string(out, value),
        Value::Array(items) => {
            out.push('[');
            for (at, item) in items.iter().enumerate() {
                if at > 0 {
                    out.push(',');
                }
                write_value(out, item);
            }
            out.push(']');
        }
        Value::Object(map) => write_object(out, map),
    }
}

fn write_object(out: &mut String, map: &Map<String, Value>) {
    let mut entries: Vec<(&String, &Value)> = map.iter().collect();
    entries.sort_by(|(a, _), (b, _)| a.encode_utf16().cmp(b.encode_utf16()));
    out.push('{');
    for (at, (key, value)) in entries.into_iter().enumerate() {
        if at > 0 {
            out.push(',');
        }
        write_string(out, key);
        out.push(':');
        write_value(out, value);
    }
    out.push('}');
}

fn write_string(out: &mut String, text: &str) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\u{8}' => out.push_str("\\b"),
            '\t' => out.push_str("\\t"),
            '\n' => out.push_str("\\n"),
            '\u{c}' => out.push_str("\\f"),
            '\r' => out.push_str("\\r"),
            // Writing into a string cannot fail.
            c if c < ' ' => drop(write!(out, "\\u{:04x}", u32::from(c))),
            c => out.push(c),
        }
    }
    out.push('"');
}

fn write_number(out: &mut String, number: &Number) {
    match number.as_f64() {
        Some(value) if number.is_f64() => write_double(out, value, &number.to_string()),
        _ => out.push_str(&number.to_string()),
    }
}

/// Whole numbers within 64 bits exactly, all else by the algorithm of ECMA-262, `Number::toString`.
///
/// `shortest` has the fewest digits that read back as the same double, the even ones where two are as near.
fn write_double(out: &mut String, value: f64, shortest: &str) {
    const TWO_64: f64 = 18_446_744_073_709_551_616.0;
    const TWO_63: f64 = 9_223_372_036_854_775_808.0;
    if value.fract() == 0.0 && (-TWO_63..TWO_64).contains(&value) {
        #[expect(clippy::cast_possible_truncation, reason = "the range was checked, and i128 holds it")]
        let whole = value as i128;
        out.push_str(&whole.to_string());
        return;
    }
    let (digits, point) = decimal(shortest);
    let count = digits.len();
    if value < 0.0 {
        out.push('-');
    }
    match usize::try_from(point) {
        Ok(whole @ 1..=21) if whole >= count => out.push_str(&format!("{digits}{}", "0".repeat(whole - count))),
        Ok(whole @ 1..=21) => out.push_str(&format!("{}.{}", &digits[..whole], &digits[whole..])),
        _ if (-5..=0).contains(&point) => {
            out.push_str(&format!("0.{}{digits}", "0".repeat(point.unsigned_abs() as usize)));
        }
        _ => {
            let (first, rest) = digits.split_at(1);
            let dot = if rest.is_empty() { "" } else { "." };
            let sign = if point > 0 { '+' } else { '-' };
            out.push_str(&format!("{first}{dot}{rest}e{sign}{}", (point - 1).unsigned_abs()));
        }
    }
}

/// The digits of a number's text, and after how many of them the decimal point stands.
fn decimal(text: &str) -> (String, i32) {
    let (mantissa, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let whole = whole.trim_start_matches('-');
    let all = format!("{whole}{fraction}");
    let digits = all.trim_start_matches('0');
    let leading = all.len() - digits.len();
    // A double has some 770 digits at most, so neither number comes near the bounds of an i32.
    let point = i32::try_from(whole.len()).unwrap_or(0) - i32::try_from(leading).unwrap_or(0) + exponent.parse::<i32>().unwrap_or(0);
    (digits.trim_end_matches('0').to_owned(), point)
}
