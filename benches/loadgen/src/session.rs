//! One session: a WebSocket with one outstanding request.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::{SinkExt, StreamExt};
use serde::Deserialize;
use serde::de::IgnoredAny;
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::timeout;
use tokio_websockets::{ClientBuilder, Limits, MaybeTlsStream, Message, WebSocketStream};

use crate::target::{Address, Frames};

/// Why a request failed, and whether the session is over.
pub struct Failure {
    /// What was seen.
    pub text: String,
    /// No further request can be answered.
    pub over: bool,
}

impl Failure {
    fn over(text: String) -> Self {
        Self { text, over: true }
    }
}

/// How long connecting and the first reset took.
#[derive(Clone, Copy)]
pub struct Opened {
    /// TCP connect and handshake.
    pub connect: Duration,
    /// The reset after it.
    pub reset: Duration,
}

/// A connected session.
pub struct Session {
    socket: WebSocketStream<MaybeTlsStream<TcpStream>>,
    step: Message,
    expect: Arc<str>,
    patience: Duration,
}

/// The whole reply is parsed, `data` must be there, and nothing of it is kept.
#[derive(Deserialize)]
struct Reply<'a> {
    #[serde(rename = "type", borrow)]
    kind: &'a str,
    #[serde(rename = "data")]
    _data: IgnoredAny,
}

impl Session {
    /// Connects and resets.
    pub async fn open(address: &Address, frames: &Frames) -> Result<(Self, Opened), Failure> {
        let patience = frames.patience();
        let start = Instant::now();
        let socket = timeout(patience, handshake(address))
            .await
            .map_err(|_| Failure::over(format!("no handshake within {patience:?}")))?
            .map_err(Failure::over)?;
        let connect = start.elapsed();
        let step = Message::text(frames.step.clone());
        let mut session = Self { socket, step, expect: frames.expect.as_str().into(), patience };
        let reset = session.ask(Message::text(frames.reset.clone()), "").await?;
        Ok((session, Opened { connect, reset }))
    }

    /// One step; the time from before sending to after checking the reply.
    pub async fn step(&mut self) -> Result<Duration, Failure> {
        let expect = Arc::clone(&self.expect);
        self.ask(self.step.clone(), &expect).await
    }

    async fn ask(&mut self, request: Message, expect: &str) -> Result<Duration, Failure> {
        let start = Instant::now();
        let patience = self.patience;
        timeout(patience, async {
            self.socket.send(request).await.map_err(|error| Failure::over(format!("cannot send: {error}")))?;
            let reply = self.receive().await?;
            check(&reply, expect)
        })
        .await
        .unwrap_or_else(|_| Err(Failure::over(format!("no reply within {patience:?}"))))?;
        Ok(start.elapsed())
    }

    /// The next text or binary frame. Pings are answered by the socket while it is read.
    async fn receive(&mut self) -> Result<Message, Failure> {
        loop {
            match self.socket.next().await {
                Some(Ok(message)) if message.is_text() || message.is_binary() => return Ok(message),
                Some(Ok(message)) if message.is_close() => {
                    return Err(Failure::over(format!("closed by the server: {:?}", message.as_close())));
                }
                Some(Ok(_)) => {}
                Some(Err(error)) => return Err(Failure::over(format!("cannot receive: {error}"))),
                None => return Err(Failure::over("the connection ended".into())),
            }
        }
    }

    /// Stays open, answering pings, until the phase is another one. A frame nobody asked for is a failure.
    pub async fn rest<T: Copy + PartialEq>(&mut self, phase: &mut watch::Receiver<T>, during: T) -> Result<(), Failure> {
        loop {
            if *phase.borrow_and_update() != during {
                return Ok(());
            }
            tokio::select! {
                changed = phase.changed() => if changed.is_err() { return Ok(()) },
                frame = self.receive() => {
                    let frame = frame?;
                    return Err(Failure::over(format!("a frame nobody asked for: {}", excerpt(&frame))));
                }
            }
        }
    }

    /// Says goodbye as the stock client does, and waits a while for the server to hang up.
    pub async fn close(mut self) {
        let farewell = async {
            if self.socket.send(Message::text(r#"{"type":"close"}"#)).await.is_ok() {
                while let Some(Ok(_)) = self.socket.next().await {}
            }
        };
        let _ = timeout(Duration::from_secs(10), farewell).await;
    }
}

async fn handshake(address: &Address) -> Result<WebSocketStream<MaybeTlsStream<TcpStream>>, String> {
    let stream = TcpStream::connect(address.socket).await.map_err(|error| format!("cannot connect: {error}"))?;
    stream.set_nodelay(true).map_err(|error| format!("cannot set TCP_NODELAY: {error}"))?;
    let builder = ClientBuilder::from_uri(address.uri.clone()).limits(Limits::default().max_payload_len(Some(64 << 20)));
    let (socket, _) = builder.connect_on(MaybeTlsStream::Plain(stream)).await.map_err(|error| format!("handshake failed: {error}"))?;
    Ok(socket)
}

fn check(reply: &Message, expect: &str) -> Result<(), Failure> {
    let wrong = |what: &str| Failure { text: format!("{what}: {}", excerpt(reply)), over: false };
    let Some(text) = reply.as_text() else { return Err(wrong("not a text frame")) };
    let parsed: Reply<'_> = serde_json::from_str(text).map_err(|error| wrong(&format!("not a reply ({error})")))?;
    if parsed.kind != "observation" {
        return Err(wrong("not an observation"));
    }
    if !text.contains(expect) {
        return Err(wrong(&format!("a reply without `{expect}`")));
    }
    Ok(())
}

fn excerpt(message: &Message) -> String {
    message.as_text().unwrap_or("binary").chars().take(300).collect()
}
