//! Applications with routes of their own: run as they are on a Unix socket, and everything passed on to them.

use std::io;
use std::path::PathBuf;
use std::process::Child;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use envharness_worker::{Launch, Launcher};
use http::header::{AUTHORIZATION, SEC_WEBSOCKET_PROTOCOL};
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;

use crate::answer::{Body, detail, not_found};
use crate::config::RunMode;
use crate::doors::protocols;
use crate::http::is_upgrade;
use crate::server::Shared;

/// The process of an application and the socket it listens on.
#[derive(Debug)]
pub struct Upstream {
    path: PathBuf,
    child: Arc<Mutex<Child>>,
    /// The folder of the socket; removed with this.
    _folder: PathBuf,
}

impl Upstream {
    /// Starts an application under uvicorn and waits until it answers.
    ///
    /// # Errors
    /// It cannot be started, ends, or does not answer in time; the text has what it printed last.
    pub async fn start(
        launcher: Arc<dyn Launcher>,
        app: &str,
        folder: Option<&str>,
        env: Vec<(String, String)>,
        limit: Duration,
    ) -> Result<Self, String> {
        // A socket's path has at most 108 bytes, so it lies in a short place.
        let place = std::env::temp_dir().join(format!("envharness-{}-{}", std::process::id(), &crate::live::uuid()[..8]));
        make_private(&place).map_err(|error| format!("cannot make {}: {error}", place.display()))?;
        let path = place.join("app.sock");
        // The socket is made here and given away as standard input: its path need not be visible where the application runs.
        let mut arguments: Vec<String> = ["-m", "uvicorn", app, "--fd", "0"].map(String::from).to_vec();
        arguments.extend(["--log-level", "warning", "--ws-max-size", "104857600"].map(String::from));
        if let Some(folder) = folder {
            arguments.extend(["--app-dir".to_owned(), folder.to_owned()]);
        }
        let failed = |error: io::Error| format!("cannot start the application: {error}");
        let listener = std::os::unix::net::UnixListener::bind(&path).map_err(failed)?;
        let (pipe, sink) = io::pipe().map_err(failed)?;
        let launch = Launch { arguments, env, stdin: listener.into(), output: sink.into() };
        let (sender, receiver) = tokio::sync::oneshot::channel();
        // The process ends with the thread that started it; the thread then follows its output to the end.
        let spawned = std::thread::Builder::new().name("envharness-app".to_owned()).spawn(move || {
            let started = launcher.launch(launch);
            let go_on = started.is_ok();
            let _ = sender.send(started);
            if go_on {
                for line in io::BufRead::lines(io::BufReader::new(pipe)).map_while(Result::ok) {
                    tracing::info!(target: "envharness::output", process = "application", text = %line);
                }
            }
        });
        spawned.map_err(failed)?;
        let process = receiver.await.map_err(|_| "its thread ended".to_owned())?.map_err(failed)?;
        let upstream = Self { path, child: Arc::new(Mutex::new(process.child)), _folder: place };
        let began = Instant::now();
        loop {
            if tokio::time::timeout(Duration::from_millis(500), upstream.answers()).await.unwrap_or(false) {
                return Ok(upstream);
            }
            let ended = upstream.child.lock().unwrap_or_else(PoisonError::into_inner).try_wait().map_err(failed)?;
            if let Some(status) = ended {
                return Err(format!("the application ended before it answered: {status}; `-v` shows what it printed"));
            }
            if began.elapsed() > limit {
                return Err(format!("the application did not answer within {} s; raise it with --start-timeout", limit.as_secs()));
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Whether it answers a request, whatever the answer is.
    async fn answers(&self) -> bool {
        let Ok(mut stream) = UnixStream::connect(&self.path).await else { return false };
        let asked = stream.write_all(b"GET /health HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").await;
        asked.is_ok() && matches!(stream.read(&mut [0; 16]).await, Ok(read) if read > 0)
    }

    /// Passes a request on, WebSockets included.
    pub(crate) async fn pass(&self, mut request: Request<Incoming>, shared: &Arc<Shared>) -> Response<Body> {
        if shared.config.mode == RunMode::Production && matches!(request.uri().path(), "/reset" | "/step" | "/state") {
            return not_found();
        }
        if shared.config.doors.token.is_some() {
            hide_token(request.headers_mut());
        }
        let refused = |error: &dyn std::fmt::Display| detail(StatusCode::BAD_GATEWAY, format!("the application does not answer: {error}"));
        let stream = match UnixStream::connect(&self.path).await {
            Ok(stream) => stream,
            Err(error) => return refused(&error),
        };
        let (mut sender, connection) = match hyper::client::conn::http1::handshake(TokioIo::new(stream)).await {
            Ok(pair) => pair,
            Err(error) => return refused(&error),
        };
        tokio::spawn(async move {
            let _ = connection.with_upgrades().await;
        });
        let ours = is_upgrade(request.headers()).then(|| hyper::upgrade::on(&mut request));
        let mut response = match sender.send_request(request).await {
            Ok(response) => response,
            Err(error) => return refused(&error),
        };
        if let (StatusCode::SWITCHING_PROTOCOLS, Some(ours)) = (response.status(), ours) {
            let theirs = hyper::upgrade::on(&mut response);
            tokio::spawn(async move {
                let (Ok(ours), Ok(theirs)) = tokio::join!(ours, theirs) else { return };
                let _ = tokio::io::copy_bidirectional(&mut TokioIo::new(ours), &mut TokioIo::new(theirs)).await;
            });
        }
        response.map(|body| body.boxed())
    }

    /// Whether its process has ended.
    pub(crate) fn has_ended(&self) -> bool {
        !matches!(self.child.lock().unwrap_or_else(PoisonError::into_inner).try_wait(), Ok(None))
    }

    /// Asks it to end, and sees to it that it does.
    pub(crate) async fn end(&self) {
        let pid = self.child.lock().unwrap_or_else(PoisonError::into_inner).id();
        let pid = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw);
        if let Some(pid) = pid.filter(|_| !self.has_ended()) {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        }
        for _ in 0..100 {
            if self.has_ended() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        let _ = self.child.lock().unwrap_or_else(PoisonError::into_inner).kill();
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        let _ = self.child.lock().unwrap_or_else(PoisonError::into_inner).kill();
        let _ = std::fs::remove_dir_all(&self._folder);
    }
}

/// The token is the front's business; the application behind it does not see it.
fn hide_token(headers: &mut HeaderMap) {
    headers.remove(AUTHORIZATION);
    let offered: Vec<String> = protocols(headers).filter(|protocol| !protocol.starts_with("bearer.")).map(ToOwned::to_owned).collect();
    headers.remove(SEC_WEBSOCKET_PROTOCOL);
    if let Some(value) = (!offered.is_empty()).then(|| offered.join(", ")).and_then(|text| HeaderValue::from_str(&text).ok()) {
        headers.insert(SEC_WEBSOCKET_PROTOCOL, value);
    }
}

fn make_private(folder: &std::path::Path) -> io::Result<()> {
    use std::os::unix::fs::DirBuilderExt as _;
    std::fs::DirBuilder::new().mode(0o700).create(folder)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_token_stays_in_front() {
        let mut headers = HeaderMap::new();
        headers.insert(AUTHORIZATION, HeaderValue::from_static("Bearer s3cret"));
        headers.insert(SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static("chat, bearer.s3cret"));
        hide_token(&mut headers);
        assert_eq!(headers.len(), 1);
        assert_eq!(headers[SEC_WEBSOCKET_PROTOCOL], "chat");
    }
}
