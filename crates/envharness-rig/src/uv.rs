//! The `uv` binary, run as a subprocess with our own cache.

use std::ffi::OsString;
use std::fs;
use std::io::{BufRead as _, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use envharness_sandbox::{ChildOptions, Tree, configure};
use envharness_spec::{Index, Spec};
use envharness_store::Home;

use crate::deadline::Deadline;
use crate::error::RigError;
use crate::event::{Event, Reporter};
use crate::process::reap;
use crate::settings::Settings;

/// Variables that uv may see beside `HOME` and `PATH`: the network, certificates, credentials, compilers.
const PASSED: [&str; 28] = [
    "HOME",
    "PATH",
    "USER",
    "LANG",
    "LC_ALL",
    "TMPDIR",
    "NETRC",
    "SSH_AUTH_SOCK",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "REQUESTS_CA_BUNDLE",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "ALL_PROXY",
    "NO_PROXY",
    "http_proxy",
    "https_proxy",
    "all_proxy",
    "no_proxy",
    "CC",
    "CXX",
    "CFLAGS",
    "CXXFLAGS",
    "LDFLAGS",
    "MAKEFLAGS",
    "PKG_CONFIG_PATH",
    "RUSTUP_HOME",
    "CARGO_HOME",
];
/// Families of variables that uv may see: credentials of indexes, and uv's own limits and time-outs.
const PASSED_PREFIXES: [&str; 8] =
    ["UV_INDEX_", "UV_HTTP_", "UV_CONCURRENT_", "UV_KEYRING_", "UV_SYSTEM_CERTS", "UV_NATIVE_TLS", "UV_REQUEST_TIMEOUT", "GIT_"];
/// The newest output that is kept for an error.
const KEPT_OUTPUT: usize = 64 * 1024;

/// A `uv` that was found, with what it needs to run.
pub struct Uv<'a> {
    program: PathBuf,
    settings: &'a Settings,
    cache: PathBuf,
}

/// What a run of `uv` gave.
#[derive(Debug)]
pub struct Ran {
    /// Whether it succeeded.
    pub success: bool,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
}

impl<'a> Uv<'a> {
    /// Finds `uv`: `ENVHARNESS_UV`, beside this program, beside the caller's Python, on PATH.
    ///
    /// # Errors
    /// [`RigError::NoProgram`].
    pub fn find(settings: &'a Settings, home: &Home) -> Result<Self, RigError> {
        let beside = |path: PathBuf| path.parent().map(|dir| dir.join("uv"));
        let mut places: Vec<PathBuf> = settings.variable("ENVHARNESS_UV").map(PathBuf::from).into_iter().collect();
        places.extend(std::env::current_exe().ok().and_then(beside));
        places.extend(settings.caller_python.clone().and_then(beside));
        places.extend(std::env::split_paths(settings.variable("PATH").unwrap_or_default()).map(|dir| dir.join("uv")));
        let user = PathBuf::from(settings.variable("HOME").unwrap_or_default());
        places.extend([user.join(".local/bin/uv"), user.join(".cargo/bin/uv")]);
        let program = places.into_iter().find(|path| is_binary(path)).ok_or(RigError::NoProgram("uv"))?;
        Ok(Self { program, settings, cache: home.cache().join("uv") })
    }

    /// The program.
    pub fn program(&self) -> &Path {
        &self.program
    }

    /// A `pip` for a writable environment: uv's, with our downloads. Links would cross the overlay's border.
    pub fn pip_script(&self, cache: &Path) -> String {
        let (program, cache) = (self.program.display(), cache.display());
        format!(
            "#!/bin/sh\nUV_CACHE_DIR='{cache}' UV_LINK_MODE=copy UV_NO_CONFIG=1 UV_BREAK_SYSTEM_PACKAGES=1 exec '{program}' pip \"$@\"\n"
        )
    }

    /// The version and the path.
    ///
    /// # Errors
    /// [`RigError::Start`].
    pub fn version(&self) -> Result<String, RigError> {
        let program = self.program.display().to_string();
        let output = Command::new(&self.program).arg("--version").output();
        let output = output.map_err(|source| RigError::Start { program: program.clone(), source, hint: None })?;
        Ok(format!("{} at {program}", String::from_utf8_lossy(&output.stdout).trim()))
    }

    /// Variables that name the indexes of a spec, mirrors applied: an address may hold credentials, and arguments are
    /// there for every user to see.
    fn index_variables(&self, spec: &Spec) -> Vec<(&'static str, String)> {
        let indexes = effective_indexes(self.settings, spec);
        // With its name, by which credentials are found.
        let named = |index: &Index| format!("{}={}", index.name, index.url);
        let others: Vec<String> = indexes.iter().filter(|i| !i.default).map(named).collect();
        let mut out: Vec<(&'static str, String)> =
            indexes.iter().find(|i| i.default && !i.url.is_empty()).map(|i| ("UV_DEFAULT_INDEX", named(i))).into_iter().collect();
        if !others.is_empty() {
            out.push(("UV_INDEX", others.join(" ")));
        }
        out
    }

    /// Arguments that name find-links and the like of a spec.
    pub fn index_args(&self, spec: &Spec) -> Vec<OsString> {
        let mut args: Vec<OsString> = Vec::new();
        for place in spec.find_links.iter().cloned().chain(self.settings.list("find_links")) {
            let path = if place.contains("://") { PathBuf::from(place) } else { spec.base.clone().unwrap_or_default().join(place) };
            args.extend(["--find-links".into(), path.into_os_string()]);
        }
        for host in self.settings.list("allow_insecure_host") {
            args.extend(["--allow-insecure-host".into(), host.into()]);
        }
        if spec.no_build || self.settings.flag("no_build") {
            args.push("--no-build".into());
        }
        args
    }

    /// Runs `uv`, feeding downloads to the reporter, and ends its whole process tree when time is over.
    ///
    /// # Errors
    /// [`RigError::Timeout`], [`RigError::Interrupted`], [`RigError::Start`]; a failure of `uv` itself is in [`Ran`].
    pub fn run(
        &self,
        spec: &Spec,
        args: &[OsString],
        cwd: &Path,
        action: &str,
        deadline: Deadline,
        reporter: &dyn Reporter,
    ) -> Result<Ran, RigError> {
        let marker = format!("ENVHARNESS_RUN=uv-{}", envharness_store::random_suffix(12));
        let mut command = self.command(args, cwd, &marker);
        command.envs(self.index_variables(spec));
        configure(&mut command, &ChildOptions { new_session: true, die_with_parent: true, ..ChildOptions::default() });
        tracing::debug!(program = %self.program.display(), ?args, "uv");
        let mut child =
            command.spawn().map_err(|source| RigError::Start { program: self.program.display().to_string(), source, hint: None })?;
        let result = self.watch(&mut child, action, deadline, reporter);
        if result.is_err() {
            Tree { marker, namespace: None }.kill();
            reap(&mut child);
        }
        result
    }

    fn command(&self, args: &[OsString], cwd: &Path, marker: &str) -> Command {
        let mut command = Command::new(&self.program);
        command.env_clear().current_dir(cwd).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        for (name, value) in self.settings.variables() {
            if PASSED.contains(&name.as_str()) || PASSED_PREFIXES.iter().any(|prefix| name.starts_with(prefix)) && name != "UV_INDEX_URL" {
                command.env(name, value);
            }
        }
        if let Some((name, value)) = marker.split_once('=') {
            command.env(name, value);
        }
        command.args(args).args(["--no-config", "--color", "never", "--cache-dir"]).arg(&self.cache);
        if self.settings.flag("offline") {
            command.arg("--offline");
        }
        command
    }

    fn watch(&self, child: &mut Child, action: &str, deadline: Deadline, reporter: &dyn Reporter) -> Result<Ran, RigError> {
        let (sender, lines) = mpsc::channel::<(bool, String)>();
        let mut readers = Vec::new();
        let pipes: [(bool, Option<Box<dyn Read + Send>>); 2] = [
            (false, child.stdout.take().map(|pipe| Box::new(pipe) as Box<dyn Read + Send>)),
            (true, child.stderr.take().map(|pipe| Box::new(pipe) as Box<dyn Read + Send>)),
        ];
        for (is_error, pipe) in pipes {
            let Some(pipe) = pipe else { continue };
            let sender = sender.clone();
            readers.push(std::thread::spawn(move || {
                let mut reader = BufReader::new(pipe);
                let mut line = Vec::new();
                while reader.read_until(b'\n', &mut line).is_ok_and(|read| read > 0) {
                    if sender.send((is_error, String::from_utf8_lossy(&line).into_owned())).is_err() {
                        return;
                    }
                    line.clear();
                }
            }));
        }
        drop(sender);
        let mut ran = Ran { success: false, stdout: String::new(), stderr: String::new() };
        loop {
            match lines.recv_timeout(Duration::from_millis(50)) {
                Ok((true, line)) => {
                    report_line(&line, reporter);
                    ran.stderr.push_str(&line);
                }
                Ok((false, line)) => ran.stdout.push_str(&line),
                Err(mpsc::RecvTimeoutError::Timeout) => {}
                Err(mpsc::RecvTimeoutError::Disconnected) => break,
            }
            if reporter.interrupted() {
                return Err(RigError::Interrupted);
            }
            deadline.check(action, || tail(&ran.stderr))?;
        }
        for reader in readers {
            let _ = reader.join();
        }
        let status = child.wait().map_err(|source| RigError::Io { action: "wait for", path: self.program.clone(), source })?;
        ran.success = status.success();
        Ok(ran)
    }
}

/// The end of a text, from a line's beginning.
pub(crate) fn tail(text: &str) -> String {
    let start = text.floor_char_boundary(text.len().saturating_sub(KEPT_OUTPUT));
    text[start..].trim_end().to_owned()
}

/// The indexes of a spec before those of the settings; a default of the spec stands in for the settings' default.
pub fn effective_indexes(settings: &Settings, spec: &Spec) -> Vec<Index> {
    let own_default = spec.indexes.iter().any(|index| index.default);
    let general = settings.indexes.iter().filter(|index| !(own_default && index.default));
    let mut out: Vec<Index> = spec.indexes.iter().chain(general).cloned().collect();
    // uv takes earlier indexes first, and the default last.
    out.sort_by_key(|index| index.default);
    out
}

fn report_line(line: &str, reporter: &dyn Reporter) {
    let line = line.trim();
    if let Some(what) = line.strip_prefix("Downloading ") {
        reporter.event(&Event::Downloading { what: what.to_owned() });
    } else if let Some(what) = line.strip_prefix("Downloaded ") {
        reporter.event(&Event::Downloaded { what: what.to_owned() });
    } else if let Some(message) = line.strip_prefix("warning: ") {
        reporter.event(&Event::Warning { message: message.to_owned(), hint: None });
    }
}

/// A real program: pyenv's shim for `uv` would look for an interpreter first.
fn is_binary(path: &Path) -> bool {
    let mut magic = [0_u8; 4];
    fs::File::open(path).and_then(|mut file| file.read_exact(&mut magic)).is_ok() && !magic.starts_with(b"#!")
}
