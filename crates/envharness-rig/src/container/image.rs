//! The image of a container: found, pulled, asked what is in it.

use std::path::{Path, PathBuf};

use envharness_engine::{ContainerSpec, Credentials, Ended, Engine, ExecSpec, ImageFacts, PullStep, Stdin, label};
use envharness_spec::{LockedImage, human_bytes};
use envharness_store::Home;
use serde::{Deserialize, Serialize};

use super::{Waiting, home_label};
use crate::error::RigError;
use crate::event::Event;
use crate::interpreter::{Interpreter, QUERY};

/// Finds a Python and the C library; the words are those of any POSIX shell.
const PROBE: &str = r#"
for name in $1 python3 python; do
    if found=$(command -v "$name" 2>/dev/null) && [ -x "$found" ]; then break; fi
    found=
done
libc=$(getconf GNU_LIBC_VERSION 2>/dev/null || ldd --version 2>&1 | head -n 2 | tr '\n' ' ')
for loader in /lib*/ld-linux* /lib/ld-musl*; do [ -e "$loader" ] && break; done
printf '%s\n%s\n%s\n' "$found" "$libc" "$loader"
[ -z "$found" ] || "$found" -I -S -B -c "$2" 2>/dev/null
"#;

/// How long a question to an image may take, in seconds, before anybody may remove it.
const PROBE_LIFE: f64 = 900.0;

/// What is in an image.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Inside {
    /// Its Python, at the path in the image.
    pub python: Option<Interpreter>,
    /// `glibc 2.36`, `musl 1.2`, or nothing known.
    pub libc: String,
}

/// The Python of an image, with one of this machine that installs for it.
#[derive(Debug, Clone)]
pub(crate) struct ImagePython {
    pub inside: Interpreter,
    pub host: Interpreter,
    pub libc: String,
}

/// Asks an image what is in it, once; `wanted` is tried before `python3`.
pub(crate) fn inside_of(home: &Home, engine: &Engine, image: &str, wanted: &str, call: &Waiting<'_>) -> Result<Inside, RigError> {
    let key = Path::new("image").join(image.replace(':', "/"));
    let stamp = format!("1 {wanted}");
    if let Some(known) = home.known_interpreter(&key, &stamp)?
        && let Ok(inside) = serde_json::from_str(&known)
    {
        return Ok(inside);
    }
    let name = format!("envharness-probe-{}", envharness_store::random_suffix(10));
    let over = envharness_store::now() + PROBE_LIFE;
    let labels = [
        (label::HOME, home_label(home)?),
        (label::OWNER, name.clone()),
        (label::ROLE, "probe".into()),
        (label::DEADLINE, format!("{over:.0}")),
    ];
    let spec = ContainerSpec {
        name: name.clone(),
        image: image.to_owned(),
        command: ["/bin/sh", "-c", "sleep 600"].map(str::to_owned).into(),
        labels: labels.into_iter().map(|(name, value)| (name.to_owned(), value)).collect(),
        network: "none".into(),
        user: "0:0".into(),
        read_only: true,
        ..ContainerSpec::default()
    };
    engine.start(&spec, call)?;
    let mut out = Vec::new();
    let argv = ["/bin/sh", "-c", PROBE, "sh", wanted, QUERY].map(str::to_owned).into();
    let asked = engine.exec(
        &name,
        &ExecSpec { argv, ..ExecSpec::default() },
        Stdin::Closed,
        &mut |is_error, bytes| {
            if !is_error {
                out.extend_from_slice(bytes);
            }
        },
        &mut || !call.reporter.interrupted() && call.deadline.left() != Some(std::time::Duration::ZERO),
        &|| None,
    );
    engine.remove(&name, &envharness_engine::Patient)?;
    let inside = told(&out);
    match asked? {
        Ended::Left => return Err(RigError::Interrupted),
        Ended::Code(0) => {}
        // Killed, or a Python that does not run: asked again the next time.
        Ended::Code(_) => return Ok(inside),
    }
    home.remember_interpreter(&key, &stamp, &serde_json::to_string(&inside).unwrap_or_default())?;
    Ok(inside)
}

fn told(answer: &[u8]) -> Inside {
    let mut parts = answer.splitn(4, |byte| *byte == b'\n');
    let mut line = || String::from_utf8_lossy(parts.next().unwrap_or_default()).trim().to_owned();
    let (path, libc, loader) = (line(), line(), line());
    let python = Interpreter::told(Path::new(&path), parts.next().unwrap_or_default());
    Inside { python: python.filter(|_| !path.is_empty()), libc: libc_of(&libc, &loader) }
}

/// `glibc 2.36` out of what `getconf` or `ldd` say and the loader's name.
fn libc_of(text: &str, loader: &str) -> String {
    let number = |text: &str| {
        let word = text.split(|c: char| c.is_whitespace() || c == ')').find(|word| {
            word.split('.').count() >= 2 && word.split('.').take(2).all(|part| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit()))
        });
        word.map(|word| word.split('.').take(2).collect::<Vec<_>>().join("."))
    };
    let lower = text.to_lowercase();
    if lower.contains("musl") || loader.contains("ld-musl") {
        return format!("musl {}", number(&lower).unwrap_or_else(|| "1.2".into()));
    }
    match number(&lower) {
        Some(version) if lower.contains("glibc") || lower.contains("gnu") || lower.contains("ldd") => format!("glibc {version}"),
        _ => String::new(),
    }
}

/// uv's word for the platform of a C library; `None` where this machine's own will do.
pub(crate) fn uv_platform(libc: &str) -> Option<String> {
    /// The manylinux platforms that uv knows by name.
    const KNOWN: [u32; 13] = [17, 28, 31, 32, 33, 34, 35, 36, 37, 38, 39, 40, 41];
    let machine = std::env::consts::ARCH;
    let (name, version) = libc.split_once(' ')?;
    if name == "musl" {
        return Some(format!("{machine}-unknown-linux-musl"));
    }
    let minor: u32 = version.strip_prefix("2.")?.parse().ok()?;
    let known = KNOWN.into_iter().rev().find(|known| *known <= minor)?.min(40);
    Some(format!("{machine}-manylinux_2_{known}"))
}

/// Pulls an image, layer by layer on the screen.
pub(crate) fn pull(engine: &Engine, name: &str, credentials: Option<&Credentials>, call: &Waiting<'_>) -> Result<(), RigError> {
    let mut layers: std::collections::BTreeMap<String, (u64, u64, bool)> = std::collections::BTreeMap::new();
    call.reporter.event(&Event::Imaging { what: format!("Pulling {name}") });
    let mut step = |step: PullStep| {
        let done = step.status.contains("complete") || step.status.contains("exists");
        if step.layer.is_empty() || step.status.starts_with("Pulling from") {
            return;
        }
        let layer = layers.entry(step.layer).or_default();
        if step.total > 0 {
            (layer.0, layer.1) = (step.current, step.total);
        }
        layer.2 |= done;
        let (ready, all) = (layers.values().filter(|layer| layer.2).count(), layers.len());
        let bytes: u64 = layers.values().map(|layer| if layer.2 { layer.1 } else { layer.0 }).sum();
        let total: u64 = layers.values().map(|layer| layer.1).sum();
        let what = format!("Pulling {name}, {ready} of {all} layers, {} of {}", human_bytes(bytes), human_bytes(total));
        call.reporter.event(&Event::Imaging { what });
    };
    Ok(engine.pull(name, credentials, &mut step, call)?)
}

/// The image of a lock, which the engine must have or get.
pub(crate) fn of_lock(
    engine: &Engine,
    image: &LockedImage,
    offline: bool,
    short: &Waiting<'_>,
    long: &Waiting<'_>,
) -> Result<ImageFacts, RigError> {
    if let Some(facts) = engine.image(&image.id, short)? {
        return Ok(facts);
    }
    let named = engine.image(&image.name, short)?;
    if let Some(facts) = named.as_ref().filter(|facts| facts.id == image.id) {
        return Ok(facts.clone());
    }
    if let Some(name) = image.pull.as_ref().filter(|_| !offline) {
        pull(engine, name, None, long)?;
        if let Some(facts) = engine.image(name, short)? {
            return Ok(facts);
        }
    }
    let reason = match named {
        Some(other) => format!("is {} here, and the lock says {}", short_id(&other.id), short_id(&image.id)),
        None if image.context.is_some() => "was built from a Dockerfile and is no longer there".to_owned(),
        None => format!("is not there, and the lock knows no registry for {}", short_id(&image.id)),
    };
    let hint = Some("run `envharness lock --upgrade` to take the image as it is now".to_owned());
    Err(RigError::Context { id: image.name.clone(), reason, hint })
}

/// Enough of a digest to tell it from others.
pub(crate) fn short_id(id: &str) -> String {
    id.trim_start_matches("sha256:").chars().take(12).collect()
}

impl ImagePython {
    /// Where the image's Python is.
    pub(crate) fn path(&self) -> &PathBuf {
        &self.inside.path
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c_libraries_are_told_by_what_their_tools_say() {
        assert_eq!(libc_of("glibc 2.36", "/lib64/ld-linux-x86-64.so.2"), "glibc 2.36");
        assert_eq!(libc_of("ldd (Debian GLIBC 2.31-13+deb11u5) 2.31", "x"), "glibc 2.31");
        assert_eq!(libc_of("musl libc (x86_64) Version 1.2.4", "/lib/ld-musl-x86_64.so.1"), "musl 1.2");
        assert_eq!(libc_of("sh: ldd: not found", "/lib/ld-musl-x86_64.so.1"), "musl 1.2");
        assert_eq!(libc_of("sh: ldd: not found", "/lib64/ld-linux-x86-64.so.2"), "");
    }

    #[test]
    fn wheels_are_chosen_for_the_image_s_c_library() {
        let machine = std::env::consts::ARCH;
        assert_eq!(uv_platform("glibc 2.31"), Some(format!("{machine}-manylinux_2_31")));
        assert_eq!(uv_platform("glibc 2.30"), Some(format!("{machine}-manylinux_2_28")));
        assert_eq!(uv_platform("glibc 2.99"), Some(format!("{machine}-manylinux_2_40")));
        assert_eq!(uv_platform("musl 1.2"), Some(format!("{machine}-unknown-linux-musl")));
        assert_eq!(uv_platform(""), None);
    }

    #[test]
    fn an_image_without_python_says_so() {
        let inside = told(b"\nglibc 2.36\n/lib64/ld-linux-x86-64.so.2\n");
        assert!(inside.python.is_none() && inside.libc == "glibc 2.36");
        let answer = b"/usr/bin/python3\nglibc 2.36\nx\n3.11.2\x00cpython\x00cpython-311-x86_64-linux-gnu\x00linux-x86_64\x003.11.2 (main)\n[GCC]\x00/usr\x00cpython-311\x00python3.11";
        let python = told(answer).python.expect("a Python");
        assert_eq!((python.version.as_str(), python.path.as_path()), ("3.11.2", Path::new("/usr/bin/python3")));
    }
}
