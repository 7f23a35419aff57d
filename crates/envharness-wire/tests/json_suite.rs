//! The JSON suite through the scanner: what must be read is read, what must not is refused, nothing crashes.

#![expect(clippy::print_stdout, reason = "a test that is skipped says so by name")]

use std::fs;
use std::path::Path;

use envharness_wire::json::scan;

/// Not JSON, and read all the same, as Python's `json.loads` reads them: its `dumps` writes them.
const AS_PYTHON: [&str; 3] = ["n_number_NaN.json", "n_number_infinity.json", "n_number_minus_infinity.json"];

#[test]
fn the_suite() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/corpora/json-parsing");
    let Ok(entries) = fs::read_dir(&folder) else {
        println!("skipped: the JSON suite is not here");
        return;
    };
    let (mut accepted, mut refused, mut either) = (0, 0, 0);
    for entry in entries {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if !name.ends_with(".json") {
            continue;
        }
        let bytes = fs::read(&path).unwrap();
        let result =
            std::str::from_utf8(&bytes).map_err(|e| e.to_string()).and_then(|text| scan(text).map(drop).map_err(|e| e.to_string()));
        match name.as_bytes()[0] {
            b'y' => {
                assert_eq!(result, Ok(()), "{name}");
                accepted += 1;
            }
            b'n' if AS_PYTHON.contains(&name.as_str()) => assert_eq!(result, Ok(()), "{name}"),
            b'n' => {
                assert!(result.is_err(), "{name}");
                refused += 1;
            }
            _ => either += 1,
        }
    }
    assert!(accepted >= 90 && refused >= 180 && either >= 30, "{accepted}, {refused}, {either}");
}
