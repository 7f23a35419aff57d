//! `/ws`: a session on a socket, one request and one reply at a time.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use envharness_wire::frame::{Answer, Op};
use envharness_wire::{Code, Request, reply, rpc};
use envharness_worker::Reply;
use futures_util::{SinkExt as _, StreamExt as _};
use serde_json::Value;
use tokio::io::AsyncReadExt as _;
use tokio_websockets::{CloseCode, Config as WsConfig, Error as WsError, Limits, Message, ServerBuilder, WebSocketStream};

use crate::config::RunMode;
use crate::live::{Ended, Live};
use crate::mcp;
use crate::server::{Connection, Shared};
use crate::socket::Socket;

/// Requests that wait while one is answered, beside a limit of one message's size in all; the socket is not read beyond them.
const MOST_WAITING: usize = 64;
/// What an answer may have beyond the limit, so that what fits into a request fits into its answer with the keys around it.
const MOST_ENVELOPE: usize = 4096;
/// How long a client may take to read a reply.
const SEND_TAKES: Duration = Duration::from_secs(60);

/// What the sweep needs to know of a socket, and how it asks it to act.
#[derive(Debug, Default)]
pub(crate) struct Pulse {
    /// When it was last heard of, in milliseconds of the server's clock.
    pub(crate) heard: AtomicU64,
    /// When its last message came.
    pub(crate) spoke: AtomicU64,
    /// A ping is wanted.
    pub(crate) ping: AtomicBool,
    /// It is taken for dead.
    pub(crate) dead: AtomicBool,
    /// It was idle for too long.
    pub(crate) idle: AtomicBool,
    /// Wakes its task.
    pub(crate) poke: tokio::sync::Notify,
}

/// A socket with its limits, its pings and its waiting messages.
pub(crate) struct Wire {
    stream: WebSocketStream<Socket>,
    waiting: VecDeque<Message>,
    closed: bool,
    pub(crate) pulse: Arc<Pulse>,
    shared: Arc<Shared>,
    /// hyper's count of the connection ended with the handshake.
    _connection: Connection,
}

/// What came from the other end.
pub(crate) enum Heard {
    /// A message.
    Message(Message),
    /// The sweep, the drain or the session wants something.
    Poked,
    /// The end; the close handshake is done.
    Gone,
}

impl Wire {
    /// Takes over an upgraded stream.
    pub(crate) fn new(shared: &Arc<Shared>, socket: Socket) -> Self {
        let limits = Limits::default().max_payload_len(Some(shared.config.most_message));
        let config = WsConfig::default().frame_size(usize::MAX).flush_threshold(usize::MAX);
        let stream = ServerBuilder::new().limits(limits).config(config).serve(socket);
        let pulse = Arc::new(Pulse::default());
        pulse.heard.store(shared.now(), Ordering::Relaxed);
        pulse.spoke.store(shared.now(), Ordering::Relaxed);
        shared.pulses.add(&pulse);
        Self { stream, waiting: VecDeque::new(), closed: false, pulse, shared: shared.clone(), _connection: Connection::new(shared) }
    }

    /// The next message, in the order in which they came.
    pub(crate) async fn next(&mut self) -> Heard {
        if let Some(message) = self.waiting.pop_front() {
            return Heard::Message(message);
        }
        self.hear().await
    }

    async fn hear(&mut self) -> Heard {
        loop {
            let message = tokio::select! {
                message = self.stream.next() => message,
                () = self.pulse.poke.notified() => {
                    if self.pulse.dead.load(Ordering::Relaxed) {
                        return Heard::Gone;
                    }
                    if self.pulse.ping.swap(false, Ordering::Relaxed) && self.stream.send(Message::ping(b"".as_slice())).await.is_err() {
                        return Heard::Gone;
                    }
                    return Heard::Poked;
                }
            };
            let now = self.shared.now();
            self.pulse.heard.store(now, Ordering::Relaxed);
            match message {
                Some(Ok(message)) if message.is_ping() || message.is_pong() => {}
                Some(Ok(message)) if message.is_close() => {
                    self.closed = message.as_close().is_some_and(|(code, _)| code == CloseCode::NORMAL_CLOSURE);
                    self.flush_close().await;
                    return Heard::Gone;
                }
                Some(Ok(message)) => {
                    self.pulse.spoke.store(now, Ordering::Relaxed);
                    return Heard::Message(message);
                }
                Some(Err(error)) => {
                    tracing::debug!(%error, "a socket is closed");
                    if let WsError::PayloadTooLong { .. } = error {
                        // The framer says this by itself of a frame that is too long, but not of fragments that add up.
                        let _ = self.stream.send(Message::close(Some(CloseCode::MESSAGE_TOO_BIG), "a message is too long")).await;
                    }
                    self.linger().await;
                    return Heard::Gone;
                }
                None => return Heard::Gone,
            }
        }
    }

    /// Lets the close frame go out that the framer has queued. The server is the one to close the connection (RFC 6455, 7.1.1).
    async fn flush_close(&mut self) {
        let flushing = async { while let Some(Ok(_)) = self.stream.next().await {} };
        let _ = tokio::time::timeout(Duration::from_secs(2), flushing).await;
    }

    /// The same, then reads on for a moment: a connection that is dropped with bytes unread is reset, and the other end would
    /// not see why.
    async fn linger(&mut self) {
        self.flush_close().await;
        let reading = async {
            let mut scrap = vec![0_u8; 16 * 1024];
            while matches!(self.stream.get_mut().read(&mut scrap).await, Ok(read) if read > 0) {}
        };
        let _ = tokio::time::timeout(Duration::from_secs(2), reading).await;
    }

    /// Waits for a result while the socket is read on, so that pings are answered and its end is seen. `None`: it is gone.
    pub(crate) async fn during<T>(&mut self, work: impl Future<Output = T>) -> Option<T> {
        tokio::pin!(work);
        loop {
            let bytes: usize = self.waiting.iter().map(|message| message.as_payload().len()).sum();
            if self.waiting.len() >= MOST_WAITING || bytes >= self.shared.config.most_message {
                let result = work.await;
                self.not_silent();
                return Some(result);
            }
            tokio::select! {
                biased;
                result = &mut work => return Some(result),
                heard = self.hear() => match heard {
                    Heard::Message(message) => self.waiting.push_back(message),
                    Heard::Poked => {}
                    Heard::Gone => return None,
                },
            }
        }
    }

    /// Whether the other end has said goodbye, and not only gone.
    pub(crate) fn was_closed(&self) -> bool {
        self.closed
    }

    /// Sends a text. False: it cannot be sent any more.
    pub(crate) async fn send(&mut self, text: Vec<u8>) -> bool {
        self.send_message(Message::text(bytes::Bytes::from(text))).await
    }

    /// Sends bytes. False: they cannot be sent any more.
    pub(crate) async fn send_binary(&mut self, bytes: Vec<u8>) -> bool {
        self.send_message(Message::binary(bytes::Bytes::from(bytes))).await
    }

    async fn send_message(&mut self, message: Message) -> bool {
        let sent = tokio::time::timeout(SEND_TAKES, self.stream.send(message)).await;
        self.not_silent();
        matches!(sent, Ok(Ok(())))
    }

    /// While the socket was not read its pongs could not be heard; that was not its silence.
    fn not_silent(&self) {
        self.pulse.heard.store(self.shared.now(), Ordering::Relaxed);
        self.pulse.dead.store(false, Ordering::Relaxed);
    }

    /// Closes with a code.
    pub(crate) async fn close(&mut self, code: CloseCode, reason: &str) {
        let reason: String = reason.chars().take(100).collect();
        let closing = async {
            let _ = self.stream.send(Message::close(Some(code), &reason)).await;
            // The other end's answer, so that what was sent is read before the connection goes.
            while let Some(Ok(_)) = self.stream.next().await {}
        };
        let _ = tokio::time::timeout(Duration::from_secs(2), closing).await;
    }
}

/// Serves a socket from its handshake to its end.
pub(crate) async fn serve(shared: Arc<Shared>, socket: Socket, client: IpAddr, attach: Option<String>) {
    let mut wire = Wire::new(&shared, socket);
    let (live, owned) = match attach {
        Some(id) => match attach_to(&shared, &id) {
            Ok(live) => (live, false),
            Err(message) => {
                shared.metrics.error(Code::SessionError.name());
                wire.send(reply::error(Code::SessionError, &message, &[])).await;
                return wire.close(CloseCode::NORMAL_CLOSURE, "").await;
            }
        },
        None => match wire.during(Live::open(&shared, client, b"")).await {
            Some(Ok(live)) => (live, true),
            Some(Err(ended)) => return refuse(&shared, &mut wire, &ended).await,
            None => return,
        },
    };
    live.attached.store(true, Ordering::Relaxed);
    let end = drive(&shared, &mut wire, &live).await;
    live.attached.store(false, Ordering::Relaxed);
    live.touch();
    let gone = matches!(end, End::Gone);
    if owned || live.closing.load(Ordering::Relaxed) || matches!(end, End::Failed(_)) {
        live.end("its socket has ended");
    }
    drop(live);
    match end {
        End::Failed(ended) => refuse(&shared, &mut wire, &ended).await,
        End::Asked => wire.close(CloseCode::NORMAL_CLOSURE, "").await,
        End::Gone => {}
    }
    if !gone {
        tracing::trace!("a socket has closed");
    }
}

async fn refuse(shared: &Shared, wire: &mut Wire, ended: &Ended) {
    shared.metrics.error(ended.code.name());
    wire.send(ended.message()).await;
    if !ended.fault {
        // A client that speaks first must be able to: old ones fail on a socket that is closing and never read why.
        let _ = tokio::time::timeout(Duration::from_secs(1), wire.next()).await;
    }
    let code = match ended.code {
        Code::Draining => CloseCode::GOING_AWAY,
        _ if ended.fault => CloseCode::INTERNAL_SERVER_ERROR,
        _ => CloseCode::NORMAL_CLOSURE,
    };
    wire.close(code, if code == CloseCode::NORMAL_CLOSURE { "" } else { ended.code.name() }).await;
}

fn attach_to(shared: &Shared, id: &str) -> Result<Arc<Live>, String> {
    let live = shared.sessions.find(id).ok_or_else(|| format!("Unknown session_id: {id}"))?;
    if live.attached.swap(true, Ordering::Relaxed) {
        return Err(format!("Session {id} already has an attached WebSocket"));
    }
    Ok(live)
}

enum End {
    /// The client asked for it.
    Asked,
    /// The socket is gone.
    Gone,
    /// The session cannot go on.
    Failed(Ended),
}

fn ended(code: Code, message: &str) -> End {
    End::Failed(Ended { code, message: message.to_owned(), more: vec![("retryable", code.retryable().to_string())], fault: false })
}

async fn drive(shared: &Arc<Shared>, wire: &mut Wire, live: &Arc<Live>) -> End {
    loop {
        if shared.draining() && (!live.in_episode() || shared.drained()) {
            return ended(Code::Draining, "the server is about to end");
        }
        let heard = tokio::select! {
            heard = wire.next() => heard,
            death = live.died() => return End::Failed(Ended::of(envharness_worker::Failure::Died(death), Some(&live.id))),
        };
        let message = match heard {
            Heard::Message(message) => message,
            Heard::Poked if wire.pulse.idle.load(Ordering::Relaxed) => return ended(Code::IdleTimeout, "the socket was idle for too long"),
            Heard::Poked => continue,
            Heard::Gone => return End::Gone,
        };
        let Some(text) = message.as_text() else {
            shared.metrics.error(Code::InvalidJson.name());
            let refusal = reply::error(Code::InvalidJson, "Invalid JSON: a message is text, and this frame is binary", &[]);
            if wire.send(refusal).await {
                continue;
            }
            return End::Gone;
        };
        let answer = match Request::parse(text, &live.served.validation) {
            Err(refused) => {
                shared.metrics.error(refused.code.name());
                Ok(refused.reply)
            }
            Ok(Request::Close) => return End::Asked,
            Ok(request) => match wire.during(answer(shared, live, text, request)).await {
                Some(answer) => answer,
                None => return End::Gone,
            },
        };
        match answer {
            Ok(reply) if reply.len() > shared.config.most_message + MOST_ENVELOPE => {
                shared.metrics.error(Code::ReplyTooLarge.name());
                let message = format!("the answer has {} bytes, a message has at most {}", reply.len(), shared.config.most_message);
                if !wire.send(reply::error(Code::ReplyTooLarge, &message, &[])).await {
                    return End::Gone;
                }
            }
            Ok(reply) => {
                if !wire.send(reply).await {
                    return End::Gone;
                }
            }
            Err(failure) => return End::Failed(failure),
        }
    }
}

/// The reply to one request.
async fn answer(shared: &Arc<Shared>, live: &Arc<Live>, text: &str, request: Request) -> Result<Vec<u8>, Ended> {
    let play = matches!(request, Request::Reset(_) | Request::Step(_) | Request::State);
    if play && shared.config.mode == RunMode::Production {
        shared.metrics.error(Code::NotAvailable.name());
        return Ok(reply::error(Code::NotAvailable, "reset, step and state are not served in production mode", &[]));
    }
    match request {
        Request::Reset(data) => {
            let payload = data.map_or(&b""[..], |range| &text.as_bytes()[range]);
            Ok(observation(shared, live.call(Op::Reset, 0, payload).await?))
        }
        Request::Step(data) => {
            let action = &text[data];
            if let Some(items) = judge(live, action) {
                shared.metrics.error(Code::ValidationError.name());
                return Ok(reply::invalid(&items));
            }
            Ok(observation(shared, live.call(Op::Step, 0, action.as_bytes()).await?))
        }
        Request::State => {
            let reply = live.call(Op::State, 0, b"").await?;
            Ok(if reply.kind == Answer::Ok { reply::state(&reply.payload) } else { failed(shared, &reply) })
        }
        Request::Mcp(data) => {
            let (id, result) = match rpc::Call::parse(&text[data], &live.served.validation.pydantic) {
                Err((id, failure)) => (id, Err(failure)),
                Ok(call) => {
                    let id = call.id.clone().unwrap_or(Value::Null);
                    (id, mcp::call_in(shared, Some(live), live.client, &call).await)
                }
            };
            Ok(reply::mcp(rpc::reply(&id, result).to_string().as_bytes()))
        }
        // The caller has taken it.
        Request::Close => Ok(Vec::new()),
    }
}

/// What the contract says against an action, where the contract is the judge.
pub(crate) fn judge(live: &Live, action: &str) -> Option<Vec<u8>> {
    let validator = live.served.validator.as_ref()?;
    let value: Value = match serde_json::from_str(action) {
        Ok(value) => value,
        Err(error) => {
            let item = serde_json::json!([{"type": "finite_number", "loc": [], "msg": format!("Input is not strict JSON: {error}"), "input": null}]);
            return Some(item.to_string().into_bytes());
        }
    };
    if validator.is_valid(&value) {
        return None;
    }
    serde_json::to_vec(&validator.problems(&value)).ok()
}

fn observation(shared: &Shared, reply: Reply) -> Vec<u8> {
    if reply.kind != Answer::Ok {
        return failed(shared, &reply);
    }
    if shared.config.strict && reply.flags & envharness_wire::frame::NOT_FINITE != 0 {
        shared.metrics.error(Code::ExecutionError.name());
        return reply::error(Code::ExecutionError, "the answer has a NaN or an infinity, which JSON cannot carry", &[]);
    }
    reply::observation(&reply.payload)
}

/// An answer that is an error, as the reference tells it.
fn failed(shared: &Shared, reply: &Reply) -> Vec<u8> {
    if reply.kind == Answer::Invalid {
        shared.metrics.error(Code::ValidationError.name());
        return reply::invalid(&reply.payload);
    }
    shared.metrics.error(Code::ExecutionError.name());
    let told: Value = serde_json::from_slice(&reply.payload).unwrap_or_default();
    reply::error(Code::ExecutionError, told["message"].as_str().unwrap_or_default(), &[])
}
