//! A session on OpenEnv's protocol: a socket of its own, answers in the order of the requests.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use envharness_wire::json::{Outer, scan};
use envharness_wire::v1::{Encoding, Op};
use futures_util::stream::SplitStream;
use futures_util::{SinkExt as _, StreamExt as _};
use tokio::sync::Notify;
use tokio_websockets::{CloseCode, Message, WebSocketStream};

use crate::address::Address;
use crate::call::{Alarm, Answer, Ask, Deliveries, Limit, Sink, deliver};
use crate::error::ClientError;
use crate::pen::Pen;
use crate::settings::Settings;
use crate::socket::{Socket, broken};

/// Calls that may be unanswered at once.
const MOST_WAITING: usize = 64;

/// The longest time for saying goodbye, and for hearing it.
const FAREWELL: Duration = Duration::from_secs(2);

/// Codes after which the session is gone, or was never there.
const ENDS: [&str; 7] = ["CAPACITY_REACHED", "FACTORY_ERROR", "SESSION_ERROR", "WORKER_DIED", "STEP_TIMEOUT", "DRAINING", "IDLE_TIMEOUT"];

#[derive(Debug)]
struct Waiting {
    ticket: u64,
    sink: Sink,
    limit: Option<Limit>,
    /// Whether the reply is wanted as it came.
    whole: bool,
}

#[derive(Debug)]
struct State {
    out: VecDeque<Message>,
    waiting: VecDeque<Waiting>,
    next: u64,
    alarm: Alarm,
    heard: Instant,
    pinged: bool,
    fate: Option<ClientError>,
    closing: bool,
    said_goodbye: bool,
    /// Who waits for the end; none any more once it is there.
    closers: Option<Vec<Sink>>,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    pen: Pen,
    /// Something is to be written.
    write: Notify,
    /// An earlier limit was set.
    look: Notify,
    /// The session is to end.
    leave: Notify,
    settings: Settings,
}

/// A session. Dropping it closes the socket.
#[derive(Debug)]
pub struct OpenEnvSession {
    shared: Arc<Shared>,
}

impl Shared {
    fn locked(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl OpenEnvSession {
    /// Takes over a socket, on the runtime of the caller.
    pub(crate) fn start(stream: WebSocketStream<Socket>, address: &Address, settings: &Settings) -> Self {
        let state = State {
            out: VecDeque::new(),
            waiting: VecDeque::new(),
            next: 1,
            alarm: Alarm::default(),
            heard: Instant::now(),
            pinged: false,
            fate: None,
            closing: false,
            said_goodbye: false,
            closers: Some(Vec::new()),
        };
        let shared = Arc::new(Shared {
            state: Mutex::new(state),
            pen: Pen::default(),
            write: Notify::new(),
            look: Notify::new(),
            leave: Notify::new(),
            settings: settings.clone(),
        });
        tokio::spawn(carry(shared.clone(), stream, address.to_string()));
        Self { shared }
    }

    /// Sends a request; the ticket is for [`OpenEnvSession::cancel`].
    pub fn ask(&self, ask: &Ask, sink: Sink) -> u64 {
        let payload = &ask.payload;
        let message = match ask.op {
            _ if ask.encoding != Encoding::Json => {
                sink.put(Err(ClientError::NotAvailable("OpenEnv's protocol carries JSON alone".to_owned())));
                return 0;
            }
            Op::Reset => message("reset", Some(payload)),
            Op::Step => message("step", Some(payload)),
            Op::State => message("state", None),
            Op::Mcp => message("mcp", Some(payload)),
            _ => {
                sink.put(Err(ClientError::NotAvailable("OpenEnv's protocol has no such call".to_owned())));
                return 0;
            }
        };
        self.send(message, ask, false, sink)
    }

    /// Sends a message as it is; the reply comes as it is.
    pub fn ask_whole(&self, ask: &Ask, sink: Sink) -> u64 {
        let text = Message::text(String::from_utf8_lossy(&ask.payload).into_owned());
        self.send(text, ask, true, sink)
    }

    fn send(&self, message: Message, ask: &Ask, whole: bool, sink: Sink) -> u64 {
        let limit = Limit::of(ask.timeout);
        let mut state = self.shared.locked();
        let refusal = match &state.fate {
            Some(fate) => Some(fate.clone()),
            None if state.closing => Some(ClientError::Closed),
            None if state.waiting.len() >= MOST_WAITING => Some(ClientError::Busy { waiting: state.waiting.len() }),
            None => None,
        };
        if let Some(error) = refusal {
            drop(state);
            sink.put(Err(error));
            return 0;
        }
        let ticket = state.next;
        state.next += 1;
        state.out.push_back(message);
        state.waiting.push_back(Waiting { ticket, sink, limit, whole });
        let look = state.alarm.set(limit);
        drop(state);
        let back = |messages: Vec<Message>| {
            let mut state = self.shared.locked();
            messages.into_iter().rev().for_each(|message| state.out.push_front(message));
        };
        if !(ask.blocking && self.shared.pen.try_write(|| written(&self.shared), back)) {
            self.shared.write.notify_one();
        }
        if look {
            self.shared.look.notify_one();
        }
        ticket
    }

    /// The caller of a ticket does not wait any more. Its reply still belongs to it, and to no later request.
    pub fn cancel(&self, ticket: u64) {
        let mut state = self.shared.locked();
        let sink = state.waiting.iter_mut().find(|waiting| waiting.ticket == ticket).map(|waiting| waiting.sink.take());
        drop(state);
        if let Some(sink) = sink {
            sink.put(Err(ClientError::Cancelled));
        }
    }

    /// Why it cannot be used any more.
    pub fn fate(&self) -> Option<ClientError> {
        self.shared.locked().fate.clone()
    }

    /// Says goodbye. The sink learns when the server has closed its end too, which it does after the session, so that
    /// the place is free; or after [`FAREWELL`], twice at most, where it does not.
    pub fn close(&self, sink: Sink) {
        let mut state = self.shared.locked();
        state.closing = true;
        match &mut state.closers {
            Some(closers) => closers.push(sink),
            None => {
                drop(state);
                sink.put(Ok(Answer::default()));
                return;
            }
        }
        drop(state);
        self.shared.write.notify_one();
        self.shared.leave.notify_one();
    }
}

impl Drop for OpenEnvSession {
    fn drop(&mut self) {
        self.close(Sink::Nowhere);
    }
}

fn message(kind: &str, data: Option<&Bytes>) -> Message {
    let mut out = Vec::with_capacity(data.map_or(0, Bytes::len) + 32);
    out.extend_from_slice(b"{\"type\":\"");
    out.extend_from_slice(kind.as_bytes());
    out.push(b'"');
    if let Some(data) = data {
        out.extend_from_slice(b",\"data\":");
        out.extend_from_slice(if data.is_empty() { b"{}" } else { data });
    }
    out.push(b'}');
    Message::text(Bytes::from(out))
}

/// Carries the socket to its end; then everything that waits is told.
async fn carry(shared: Arc<Shared>, stream: WebSocketStream<Socket>, name: String) {
    let (sink, mut source) = stream.split();
    shared.pen.set(sink).await;
    let reason = {
        let reading = read(&shared, &mut source);
        let writing = write(&shared);
        let watching = watch(&shared);
        // A server that does not read keeps nobody from leaving.
        let leaving = async {
            shared.leave.notified().await;
            tokio::time::sleep(FAREWELL).await;
        };
        tokio::select! {
            reason = reading => reason,
            reason = writing => reason,
            reason = watching => reason,
            () = leaving => Ok(()),
        }
    };
    let error = match reason {
        _ if shared.locked().closing => ClientError::Closed,
        Ok(()) => ClientError::Closed,
        Err(error) => error,
    };
    tracing::debug!(server = name, "a session has ended: {error}");
    let deliveries: Deliveries = {
        let mut state = shared.locked();
        state.fate.get_or_insert(error.clone());
        state.waiting.drain(..).map(|waiting| (waiting.sink, Err(error.clone()))).collect()
    };
    deliver(deliveries);
    let goodbye = async {
        if let Some(mut half) = shared.pen.take().await {
            let _ = half.send(Message::close(Some(CloseCode::NORMAL_CLOSURE), "")).await;
        }
        while let Some(Ok(_)) = source.next().await {}
    };
    let _ = tokio::time::timeout(FAREWELL, goodbye).await;
    let closers = shared.locked().closers.take().unwrap_or_default();
    deliver(closers.into_iter().map(|sink| (sink, Ok(Answer::default()))).collect());
}

fn lost(reason: impl ToString) -> ClientError {
    ClientError::Lost { reason: reason.to_string() }
}

async fn read(shared: &Shared, source: &mut SplitStream<WebSocketStream<Socket>>) -> Result<(), ClientError> {
    loop {
        let message = match source.next().await {
            Some(Ok(message)) => message,
            Some(Err(error)) => return Err(broken(error)),
            None => return Err(lost("the server closed the connection")),
        };
        let mut state = shared.locked();
        (state.heard, state.pinged) = (Instant::now(), false);
        if let Some((code, reason)) = message.as_close() {
            let error = state.fate.clone();
            return Err(error.unwrap_or_else(|| lost(format!("the server closed the connection: {} {reason}", u16::from(code)))));
        }
        if !message.is_text() && !message.is_binary() {
            continue;
        }
        let Some(waiting) = state.waiting.pop_front() else {
            // Refusals come unasked, before the first request.
            if let Some(text) = message.as_text()
                && let Err(error) = reply(text)
            {
                state.fate = Some(error);
                continue;
            }
            return Err(ClientError::Protocol { reason: "a message came that nothing asked for".to_owned() });
        };
        drop(state);
        let Some(text) = message.as_text() else {
            let error = ClientError::Protocol { reason: "a binary message came where text was to come".to_owned() };
            waiting.sink.put(Err(error.clone()));
            return Err(error);
        };
        if waiting.whole {
            waiting.sink.put(Ok(Answer { payload: Bytes::copy_from_slice(text.as_bytes()), ..Answer::default() }));
            continue;
        }
        let outcome = reply(text).map(|data| Answer { payload: Bytes::copy_from_slice(data.as_bytes()), ..Answer::default() });
        let over = match &outcome {
            Err(error @ ClientError::Protocol { .. }) => Some(error.clone()),
            Err(error @ ClientError::Server { code, .. }) if ENDS.contains(&code.as_str()) => {
                // The server closes after it; what comes later is told the same.
                shared.locked().fate.get_or_insert(error.clone());
                None
            }
            _ => None,
        };
        waiting.sink.put(outcome);
        if let Some(error) = over {
            return Err(error);
        }
    }
}

/// The `data` of a reply.
fn reply(text: &str) -> Result<&str, ClientError> {
    let wrong = |reason: String| ClientError::Protocol { reason };
    let members = match scan(text) {
        Ok(Outer::Object(members)) => members,
        Ok(Outer::Other(_)) => return Err(wrong("a reply is no object".to_owned())),
        Err(error) => return Err(wrong(format!("a reply is no JSON: {error}"))),
    };
    let member = |key: &str| members.iter().find(|member| member.key == key).map(|member| member.value);
    let data = member("data").unwrap_or("{}");
    match member("type") {
        Some("\"error\"") => Err(ClientError::of_data(data.as_bytes())),
        Some(_) => Ok(data),
        None => Err(wrong("a reply has no type".to_owned())),
    }
}

/// What is to be written now.
fn written(shared: &Shared) -> Vec<Message> {
    let mut state = shared.locked();
    let ping = std::mem::take(&mut state.pinged).then(|| Message::ping(Bytes::new()));
    ping.into_iter().chain(std::mem::take(&mut state.out)).collect()
}

async fn write(shared: &Shared) -> Result<(), ClientError> {
    loop {
        shared.pen.write(|| written(shared)).await.map_err(lost)?;
        let closing = {
            let mut state = shared.locked();
            let closing = state.closing && !state.said_goodbye;
            if closing {
                state.said_goodbye = true;
                state.out.push_back(Message::text("{\"type\":\"close\"}"));
            } else if state.said_goodbye {
                return Ok(());
            }
            closing
        };
        if !closing {
            shared.write.notified().await;
        }
    }
}

/// Ends calls whose time is over, pings a silent server, and gives a dead one up.
async fn watch(shared: &Shared) -> Result<(), ClientError> {
    let settings = &shared.settings;
    loop {
        let (alarm, heard) = {
            let state = shared.locked();
            (state.alarm.at(), state.heard)
        };
        let silence = heard + settings.ping_interval;
        let dead = silence + settings.ping_timeout;
        let now = Instant::now();
        let next = [alarm, Some(if now < silence { silence } else { dead })].into_iter().flatten().min().unwrap_or(dead);
        tokio::select! {
            () = tokio::time::sleep_until(next.into()) => {}
            () = shared.look.notified() => continue,
        }
        let now = Instant::now();
        let mut deliveries = Deliveries::new();
        {
            let mut state = shared.locked();
            for waiting in &mut state.waiting {
                if let Some(limit) = waiting.limit
                    && limit.until <= now
                    && !matches!(waiting.sink, Sink::Nowhere)
                {
                    deliveries.push((waiting.sink.take(), Err(limit.error())));
                }
            }
            let left: Vec<Instant> = state
                .waiting
                .iter()
                .filter(|waiting| !matches!(waiting.sink, Sink::Nowhere))
                .filter_map(|waiting| waiting.limit.map(|limit| limit.until))
                .collect();
            state.alarm.reset(left.into_iter());
            let silent = now.saturating_duration_since(state.heard);
            if silent >= settings.ping_interval + settings.ping_timeout {
                drop(state);
                deliver(deliveries);
                return Err(lost(format!("the server was silent for {:.0} s", silent.as_secs_f64())));
            }
            if silent >= settings.ping_interval {
                state.pinged = true;
                shared.write.notify_one();
            }
        }
        deliver(deliveries);
    }
}
