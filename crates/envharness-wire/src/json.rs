//! One pass over a JSON text: is it well formed, how deep does it go, and where are the members of its outermost object?
//!
//! The text is not turned into values: the payload of a message travels on as the bytes it came in. What is accepted is what
//! Python's `json.loads` accepts (RFC 8259, and `NaN`, `Infinity` and `-Infinity`, which its `dumps` writes), and a refusal
//! reads as Python's does, because that is what clients of the reference server see.

use std::borrow::Cow;
use std::ops::Range;

/// The deepest nesting of arrays and objects that is read.
pub const MOST_DEPTH: usize = 200;
/// The longest whole number that is read, as CPython has it (`sys.int_info.default_max_str_digits`).
const MOST_DIGITS: usize = 4300;

/// Why a text is not JSON, in the words of Python's `json`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JsonError {
    /// The reason alone, as in `Expecting value`.
    pub reason: String,
    /// Where, in characters from the start of the text.
    pub position: usize,
    line: usize,
    column: usize,
}

impl std::fmt::Display for JsonError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: line {} column {} (char {})", self.reason, self.line, self.column, self.position)
    }
}

impl std::error::Error for JsonError {}

/// A member of an object: its key, and the bytes of its value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member<'a> {
    /// The key, escapes read.
    pub key: Cow<'a, str>,
    /// The value's text.
    pub value: &'a str,
}

/// What a text is at its outermost level.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outer<'a> {
    /// An object, with its members in their order. Of members with equal keys the last one stays, as in Python.
    Object(Vec<Member<'a>>),
    /// Any other value.
    Other(&'a str),
}

/// Reads a text to its end.
///
/// # Errors
/// [`JsonError`] for a text that is not JSON, nests deeper than [`MOST_DEPTH`] or has a whole number of more than 4,300 digits.
pub fn scan(text: &str) -> Result<Outer<'_>, JsonError> {
    let mut scanner = Scanner { text, bytes: text.as_bytes(), at: 0, depth: 0 };
    if text.starts_with('\u{feff}') {
        return Err(scanner.error("Unexpected UTF-8 BOM (decode using utf-8-sig)", 0));
    }
    scanner.space();
    let start = scanner.at;
    let outer = if scanner.peek() == Some(b'{') {
        let mut members = Vec::new();
        scanner.object(Some(&mut members))?;
        let mut kept: Vec<Member<'_>> = Vec::with_capacity(members.len());
        for (key, value) in members {
            let member = Member { key: scanner.unescape(key), value: &text[value] };
            match kept.iter().position(|k| k.key == member.key) {
                Some(old) => kept[old] = member,
                // More than a message ever has: the linear search must not become a way to keep the server busy.
                None if kept.len() >= 1024 => return Err(scanner.error("Too many keys in the outermost object", scanner.at)),
                None => kept.push(member),
            }
        }
        Outer::Object(kept)
    } else {
        scanner.value()?;
        Outer::Other(&text[start..scanner.at])
    };
    scanner.space();
    if scanner.at < scanner.bytes.len() {
        return Err(scanner.error("Extra data", scanner.at));
    }
    Ok(outer)
}

struct Scanner<'a> {
    text: &'a str,
    bytes: &'a [u8],
    at: usize,
    depth: usize,
}

type Step = Result<(), JsonError>;

impl<'a> Scanner<'a> {
    fn error(&self, reason: &str, at: usize) -> JsonError {
        let before = String::from_utf8_lossy(&self.bytes[..at.min(self.bytes.len())]);
        let position = before.chars().count();
        let line = before.matches('\n').count() + 1;
        let column = before.rfind('\n').map_or(position + 1, |newline| before[newline + 1..].chars().count() + 1);
        JsonError { reason: reason.to_owned(), position, line, column }
    }

    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    fn space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    fn value(&mut self) -> Step {
        match self.peek() {
            Some(b'"') => self.string().map(drop),
            Some(b'{') => self.object(None),
            Some(b'[') => self.array(),
            Some(b'-' | b'0'..=b'9') => self.number(),
            _ => {
                for word in ["null", "true", "false", "NaN", "Infinity"] {
                    if self.bytes[self.at..].starts_with(word.as_bytes()) {
                        self.at += word.len();
                        return Ok(());
                    }
                }
                Err(self.error("Expecting value", self.at))
            }
        }
    }

    fn number(&mut self) -> Step {
        let start = self.at;
        if self.peek() == Some(b'-') {
            self.at += 1;
            if self.bytes[self.at..].starts_with(b"Infinity") {
                self.at += "Infinity".len();
                return Ok(());
            }
        }
        match self.peek() {
            Some(b'0') => self.at += 1,
            Some(b'1'..=b'9') => self.digits(),
            _ => return Err(self.error("Expecting value", start)),
        }
        let whole = self.at - start;
        let mut is_whole = true;
        if self.peek() == Some(b'.') && matches!(self.bytes.get(self.at + 1), Some(b'0'..=b'9')) {
            self.at += 1;
            self.digits();
            is_whole = false;
        }
        if matches!(self.peek(), Some(b'e' | b'E')) {
            let sign = usize::from(matches!(self.bytes.get(self.at + 1), Some(b'+' | b'-')));
            if matches!(self.bytes.get(self.at + 1 + sign), Some(b'0'..=b'9')) {
                self.at += 1 + sign;
                self.digits();
                is_whole = false;
            }
        }
        if is_whole && whole > MOST_DIGITS {
            return Err(self.error("Exceeds the limit (4300 digits) for integer string conversion", start));
        }
        Ok(())
    }

    fn digits(&mut self) {
        while matches!(self.peek(), Some(b'0'..=b'9')) {
            self.at += 1;
        }
    }

    /// Reads a string and gives what stands between its quotes.
    fn string(&mut self) -> Result<Range<usize>, JsonError> {
        let start = self.at;
        self.at += 1;
        loop {
            match self.peek() {
                None => return Err(self.error("Unterminated string starting at", start)),
                Some(b'"') => {
                    self.at += 1;
                    return Ok(start + 1..self.at - 1);
                }
                Some(b'\\') => match self.bytes.get(self.at + 1) {
                    None => return Err(self.error("Unterminated string starting at", start)),
                    Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => self.at += 2,
                    Some(b'u') => {
                        let hex = self.bytes.get(self.at + 2..self.at + 6);
                        if !hex.is_some_and(|hex| hex.iter().all(u8::is_ascii_hexdigit)) {
                            return Err(self.error("Invalid \\uXXXX escape", self.at + 1));
                        }
                        self.at += 6;
                    }
                    Some(_) => return Err(self.error("Invalid \\escape", self.at)),
                },
                Some(0..=0x1f) => return Err(self.error("Invalid control character at", self.at)),
                Some(_) => self.at += 1,
            }
        }
    }

    fn enter(&mut self) -> Step {
        self.depth += 1;
        self.at += 1;
        if self.depth > MOST_DEPTH {
            return Err(self.error(&format!("Nested deeper than {MOST_DEPTH} levels"), self.at - 1));
        }
        self.space();
        Ok(())
    }

    fn leave(&mut self) -> Step {
        self.depth -= 1;
        self.at += 1;
        Ok(())
    }

    fn array(&mut self) -> Step {
        self.enter()?;
        if self.peek() == Some(b']') {
            return self.leave();
        }
        loop {
            self.value()?;
            self.space();
            match self.peek() {
                Some(b',') => self.at += 1,
                Some(b']') => return self.leave(),
                _ => return Err(self.error("Expecting ',' delimiter", self.at)),
            }
            self.space();
        }
    }

    fn object(&mut self, mut members: Option<&mut Vec<(Range<usize>, Range<usize>)>>) -> Step {
        self.enter()?;
        if self.peek() == Some(b'}') {
            return self.leave();
        }
        loop {
            if self.peek() != Some(b'"') {
                return Err(self.error("Expecting property name enclosed in double quotes", self.at));
            }
            let key = self.string()?;
            self.space();
            if self.peek() != Some(b':') {
                return Err(self.error("Expecting ':' delimiter", self.at));
            }
            self.at += 1;
            self.space();
            let start = self.at;
            self.value()?;
            if let Some(members) = members.as_deref_mut() {
                members.push((key, start..self.at));
            }
            self.space();
            match self.peek() {
                Some(b',') => self.at += 1,
                Some(b'}') => return self.leave(),
                _ => return Err(self.error("Expecting ',' delimiter", self.at)),
            }
            self.space();
        }
    }

    fn unescape(&self, key: Range<usize>) -> Cow<'a, str> {
        let raw = &self.text[key.clone()];
        if !raw.contains('\\') {
            return Cow::Borrowed(raw);
        }
        // A key that only Python can hold (half of a surrogate pair) is kept as it is written: no known key looks so.
        serde_json::from_str(&self.text[key.start - 1..=key.end]).map_or(Cow::Borrowed(raw), Cow::Owned)
    }
}

/// Appends a string as JSON.
pub fn push_string(out: &mut Vec<u8>, text: &str) {
    // Writing text to memory does not fail.
    let _ = serde_json::to_writer(out, text);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(text: &str) -> String {
        scan(text).unwrap_err().to_string()
    }

    #[test]
    fn refusals_read_as_pythons() {
        assert_eq!(refusal(""), "Expecting value: line 1 column 1 (char 0)");
        assert_eq!(refusal("not json"), "Expecting value: line 1 column 1 (char 0)");
        assert_eq!(refusal("{"), "Expecting property name enclosed in double quotes: line 1 column 2 (char 1)");
        assert_eq!(refusal("{\"é\" 1}"), "Expecting ':' delimiter: line 1 column 6 (char 5)");
        assert_eq!(refusal("[1\n2]"), "Expecting ',' delimiter: line 2 column 1 (char 3)");
        assert_eq!(refusal("{} x"), "Extra data: line 1 column 4 (char 3)");
        assert_eq!(refusal("\"a"), "Unterminated string starting at: line 1 column 1 (char 0)");
        assert_eq!(refusal("\"\\x\""), "Invalid \\escape: line 1 column 2 (char 1)");
        assert_eq!(refusal("\"\t\""), "Invalid control character at: line 1 column 2 (char 1)");
        assert_eq!(refusal("01"), "Extra data: line 1 column 2 (char 1)");
    }

    #[test]
    fn members_keep_their_bytes_and_the_last_of_equal_keys() {
        let Outer::Object(members) = scan(r#" {"a": [1, {"b":2}], "\u0061" : NaN, "c":"x\"y"} "#).unwrap() else { panic!("an object") };
        let found: Vec<(&str, &str)> = members.iter().map(|m| (m.key.as_ref(), m.value)).collect();
        assert_eq!(found, [("a", "NaN"), ("c", r#""x\"y""#)]);
    }

    #[test]
    fn depth_and_digits_are_bounded() {
        let deep = |n: usize| "[".repeat(n) + &"]".repeat(n);
        assert!(scan(&deep(MOST_DEPTH)).is_ok());
        assert!(refusal(&deep(100_000)).starts_with("Nested deeper than 200 levels"));
        assert!(scan(&"9".repeat(4300)).is_ok());
        assert!(refusal(&"9".repeat(5000)).starts_with("Exceeds the limit"));
        assert!(scan(&format!("0.{}", "9".repeat(5000))).is_ok());
    }
}
