//! Keeping a connection: made again when it breaks, read, written, watched.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::stream::SplitStream;
use futures_util::{SinkExt as _, StreamExt as _};
use tokio_websockets::{CloseCode, Message};

use super::hear::{ask_for_room, take_in};
use super::{Plain, Shared, State, Stream, lost, wrong};
use crate::call::{Deliveries, deliver};
use crate::error::ClientError;
use crate::handshake;
use crate::socket::broken;

/// Waits between attempts to connect again: from the first, doubled, to the last.
const BACK_OFF: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(2));
/// A connection that lived this long was worth making.
const WORTH: Duration = Duration::from_secs(1);
/// Without sessions, connections that may break one after the other before what waits is told.
const IN_VAIN: u32 = 5;
/// How often sessions that wait for room are asked for again.
const ASK_AGAIN: Duration = Duration::from_secs(1);

/// Why a connection ended.
enum Break {
    /// We close it.
    Closing,
    /// It broke.
    Broken(ClientError),
}

/// What has gone wrong since a call was answered last.
#[derive(Debug, Default)]
struct Trouble {
    since: Option<Instant>,
    pause: Duration,
    /// Connections that broke.
    breaks: u32,
    last: Option<ClientError>,
}

/// Keeps the connection as long as somebody holds it.
pub(super) async fn live(shared: Arc<Shared>, stream: Stream) {
    let mut stream = Some(stream);
    let mut trouble = Trouble::default();
    loop {
        if let Some(stream) = stream.take() {
            let began = Instant::now();
            let end = carry(&shared, stream).await;
            let (answered, waits) = {
                let mut state = shared.locked();
                state.seats.up = false;
                (std::mem::take(&mut state.seats.answered), state.waits())
            };
            match end {
                Break::Closing => return finish(&shared, &ClientError::Closed),
                Break::Broken(error) => {
                    tracing::debug!(server = %shared.address, "the connection broke: {error}");
                    if answered || !waits {
                        trouble = Trouble {
                            pause: if began.elapsed() < WORTH && !answered { trouble.pause } else { Duration::ZERO },
                            ..Trouble::default()
                        };
                    }
                    trouble.breaks += 1;
                    if let ClientError::Protocol { .. } = error {
                        // The same would come again.
                        give_up(&shared, &error, &error);
                    }
                    trouble.last = Some(error);
                }
            }
        }
        match again(&shared, &mut trouble).await {
            Some(fresh) => stream = Some(fresh),
            None => return finish(&shared, &ClientError::Closed),
        }
    }
}

/// Connects again, as soon as there is something to connect for. None: it is closed.
async fn again(shared: &Shared, trouble: &mut Trouble) -> Option<Stream> {
    loop {
        let (wanted, has_seats, window) = {
            let state = shared.locked();
            if state.closing {
                return None;
            }
            let has_seats = state.seats.by_number.values().any(|seat| seat.fate.is_none());
            let window = state.hello["limits"]["resume_seconds"].as_f64().unwrap_or(0.0);
            (has_seats || !state.plain.is_empty(), has_seats, Duration::try_from_secs_f64(window).unwrap_or_default())
        };
        if !wanted {
            *trouble = Trouble::default();
            shared.write.notified().await;
            continue;
        }
        let began = *trouble.since.get_or_insert_with(Instant::now);
        let window = window.min(shared.settings.reconnect_timeout);
        if let Some(error) = &trouble.last {
            let refused = matches!(error, ClientError::Connect { .. } | ClientError::NotAvailable(_) | ClientError::Contract { .. });
            let vain = if has_seats { began.elapsed() + trouble.pause > window } else { refused || trouble.breaks >= IN_VAIN };
            if vain {
                let lost = ClientError::Lost { reason: error.to_string() };
                let failed = match error {
                    ClientError::Lost { reason } => {
                        ClientError::Connect { address: shared.address.to_string(), reason: reason.clone(), hint: None }
                    }
                    error => error.clone(),
                };
                // A session that was not there yet was only not reached.
                give_up(shared, &lost, &failed);
                *trouble = Trouble::default();
                continue;
            }
        }
        let attempt = async {
            tokio::time::sleep(trouble.pause).await;
            handshake::open(&shared.address, &shared.settings, "/ws").await
        };
        let opened = tokio::select! {
            opened = attempt => opened,
            never = alarms(shared) => match never {},
            () = closed(shared) => return None,
        };
        trouble.pause = (trouble.pause * 2).clamp(BACK_OFF.0, BACK_OFF.1);
        trouble.last = Some(match opened {
            Ok((stream, true)) => return Some(stream),
            Ok((_, false)) => ClientError::NotAvailable(format!("{} does not speak envharness.v1 any more", shared.address)),
            Err(error) => error,
        });
    }
}

/// Waits until it is to be closed.
async fn closed(shared: &Shared) {
    while !shared.locked().closing {
        shared.write.notified().await;
    }
}

/// Tells the limits of calls while there is no connection.
async fn alarms(shared: &Shared) -> Infallible {
    loop {
        let next = shared.locked().next_limit();
        let ring = async {
            match next {
                Some(next) => tokio::time::sleep_until(next.into()).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = ring => {}
            () = shared.look.notified() => continue,
        }
        let mut deliveries = Deliveries::new();
        expire(&mut shared.locked(), &mut deliveries);
        deliver(deliveries);
    }
}

/// All sessions end, and what waits is told.
fn give_up(shared: &Shared, lost: &ClientError, failed: &ClientError) {
    let mut deliveries = Deliveries::new();
    shared.locked().end(lost, failed, &mut deliveries);
    deliver(deliveries);
}

fn finish(shared: &Shared, error: &ClientError) {
    let mut deliveries = Deliveries::new();
    {
        let mut state = shared.locked();
        state.closed = true;
        state.end(error, error, &mut deliveries);
    }
    deliver(deliveries);
}

/// Carries one connection to its end.
async fn carry(shared: &Shared, stream: Stream) -> Break {
    let (sink, mut source) = stream.split();
    shared.pen.set(sink).await;
    shared.locked().heard = Instant::now();
    let end = {
        let reading = read(shared, &mut source);
        let writing = write(shared);
        let watching = watch(shared);
        tokio::select! {
            error = reading => Break::Broken(error),
            end = writing => end,
            error = watching => Break::Broken(error),
        }
    };
    let half = shared.pen.take().await;
    if let (Break::Closing, Some(mut half)) = (&end, half) {
        let goodbye = async {
            let _ = half.send(Message::close(Some(CloseCode::NORMAL_CLOSURE), "")).await;
            while let Some(Ok(_)) = source.next().await {}
        };
        let _ = tokio::time::timeout(Duration::from_secs(2), goodbye).await;
    }
    end
}

async fn read(shared: &Shared, source: &mut SplitStream<Stream>) -> ClientError {
    loop {
        let message = match source.next().await {
            Some(Ok(message)) => message,
            Some(Err(error)) => return broken(error),
            None => return lost("the server closed the connection"),
        };
        if message.is_binary() {
            let payload: Bytes = message.into_payload().into();
            if let Err(error) = take_in(shared, &payload) {
                return error;
            }
        } else if let Some((code, reason)) = message.as_close() {
            let said = format!("the server closed the connection: {} {reason}", u16::from(code));
            // The same again would be closed again.
            return if matches!(u16::from(code), 1002 | 1003 | 1007 | 1008 | 1009 | 1010) { wrong(said) } else { lost(said) };
        } else if message.is_text() {
            return wrong("a text came where frames were to come");
        } else {
            shared.locked().heard = Instant::now();
        }
    }
}

/// What is to be written now.
pub(super) fn written(shared: &Shared) -> Vec<Message> {
    let mut state = shared.locked();
    let ping = std::mem::take(&mut state.ping).then(|| Message::ping(Bytes::new()));
    let frames = if state.seats.up { std::mem::take(&mut state.seats.out) } else { Vec::new() };
    ping.into_iter().chain(frames.into_iter().map(|frame| Message::binary(Bytes::from(frame)))).collect()
}

async fn write(shared: &Shared) -> Break {
    loop {
        if let Err(error) = shared.pen.write(|| written(shared)).await {
            return Break::Broken(lost(error));
        }
        if shared.locked().closing {
            return Break::Closing;
        }
        shared.write.notified().await;
    }
}

/// Calls without a session whose time is over, and all others too.
fn expire(state: &mut State, deliveries: &mut Deliveries) {
    let now = Instant::now();
    state.seats.expire(now, deliveries);
    let over: Vec<u64> =
        state.plain.iter().filter(|(_, plain)| plain.until().is_some_and(|until| until <= now)).map(|(request, _)| *request).collect();
    for request in over {
        match state.plain.remove(&request) {
            // There was no room until now.
            Some(Plain { sink, parked: Some(refusal), .. }) => deliveries.push((sink, Err(refusal))),
            Some(Plain { sink, limit: Some(limit), .. }) => deliveries.push((sink, Err(limit.error()))),
            _ => {}
        }
    }
}

/// Ends calls whose time is over, pings a silent server, and gives a dead one up.
async fn watch(shared: &Shared) -> ClientError {
    let settings = &shared.settings;
    let mut asked = Instant::now();
    loop {
        let (limit, parked, heard) = {
            let state = shared.locked();
            (state.next_limit(), state.plain.values().any(|plain| plain.parked.is_some()), state.heard)
        };
        let silence = heard + settings.ping_interval;
        let dead = silence + settings.ping_timeout;
        let now = Instant::now();
        let ask = parked.then(|| asked + ASK_AGAIN);
        let next = [limit, ask, Some(if now < silence { silence } else { dead })].into_iter().flatten().min().unwrap_or(dead);
        tokio::select! {
            () = tokio::time::sleep_until(next.into()) => {}
            () = shared.look.notified() => continue,
        }
        let mut deliveries = Deliveries::new();
        let silent = {
            let mut state = shared.locked();
            expire(&mut state, &mut deliveries);
            if ask.is_some_and(|ask| ask <= Instant::now()) {
                ask_for_room(&mut state, u64::MAX);
                asked = Instant::now();
            }
            let silent = state.heard.elapsed();
            state.ping |= silent >= settings.ping_interval;
            silent
        };
        shared.write.notify_one();
        deliver(deliveries);
        if silent >= settings.ping_interval + settings.ping_timeout {
            return lost(format!("the server was silent for {:.0} s", silent.as_secs_f64()));
        }
    }
}
