//! Carrying out requests: one session's, or many sessions' together.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use envharness_wire::frame::{self, Answer};
use envharness_wire::v1::many::{Told, write_told};
use envharness_wire::v1::{ANSWER, DONE, Encoding, Header, NOT_FINITE, Op, TERMINATED, TRUNCATED};
use envharness_wire::{Code, rpc};
use envharness_worker::Reply;
use serde_json::Value;

use super::failure;
use super::line::{Kept, Task};
use super::outbox::Outbox;
use super::seat::Seat;
use crate::config::RunMode;
use crate::live::{Asking, Ended};
use crate::server::Shared;
use crate::{mcp, ws};

/// An answer of many sessions is split beyond this many bytes.
const ONE_FRAME: usize = 8 * 1024 * 1024;

/// Carries out a session's requests until none waits.
pub(super) async fn run(shared: Arc<Shared>, seat: Arc<Seat>, mut task: Task) {
    loop {
        let (kept, ended) = perform(&shared, &seat, &task).await;
        match seat.done(kept, ended, None).1 {
            Some(next) => task = next,
            None => return,
        }
    }
}

/// What is asked of the worker.
fn order(op: Op, encoding: Encoding) -> Option<(frame::Op, u8)> {
    let flags = match encoding {
        Encoding::Json => 0,
        Encoding::Msgpack => frame::MSGPACK,
        Encoding::Tensor => frame::TENSOR,
    };
    match (op, encoding) {
        (Op::Reset | Op::ResetMany, _) => Some((frame::Op::Reset, flags)),
        (Op::Step | Op::StepMany, _) => Some((frame::Op::Step, flags)),
        (Op::State, Encoding::Json | Encoding::Msgpack) => Some((frame::Op::State, flags)),
        (Op::Render, _) => Some((frame::Op::Render, 0)),
        _ => None,
    }
}

/// A refusal before the environment is asked.
fn refused(shared: &Shared, seat: &Seat, task: &Task, now: Instant) -> Option<Kept> {
    let refuse = |code: Code, message: &str| {
        shared.metrics.error(code.name());
        Some(Kept::failure(task, code, failure(code, message, &[])))
    };
    if task.cancelled {
        return refuse(Code::Cancelled, "the request was cancelled before its turn came; it was not carried out");
    }
    if task.until.is_some_and(|until| until <= now) {
        return refuse(Code::DeadlineExceeded, "the request's time was over before its turn came; it was not carried out");
    }
    if shared.config.mode == RunMode::Production && task.op != Op::Mcp {
        return refuse(Code::NotAvailable, "reset, step and state are not served in production mode");
    }
    if matches!(task.op, Op::Step | Op::StepMany) && task.encoding == Encoding::Json {
        let items = match std::str::from_utf8(&task.payload) {
            Ok(text) => ws::judge(&seat.live, text),
            Err(_) => return refuse(Code::InvalidJson, "Invalid JSON: the payload is not UTF-8"),
        };
        if let Some(items) = items {
            shared.metrics.error(Code::ValidationError.name());
            return Some(Kept::failure(task, Code::ValidationError, invalid(&items)));
        }
    }
    let is_json = task.encoding == Encoding::Json || (task.encoding == Encoding::Tensor && matches!(task.op, Op::Reset | Op::ResetMany));
    if is_json && !task.payload.is_empty() {
        let text = std::str::from_utf8(&task.payload).unwrap_or("\u{1}");
        if let Err(error) = envharness_wire::json::scan(text) {
            return refuse(Code::InvalidJson, &format!("Invalid JSON: {error}"));
        }
    }
    None
}

async fn perform(shared: &Arc<Shared>, seat: &Seat, task: &Task) -> (Kept, Option<Code>) {
    if let Some(kept) = refused(shared, seat, task, Instant::now()) {
        return (kept, None);
    }
    if task.op == Op::Mcp && task.encoding == Encoding::Json {
        return (call(shared, seat, task).await, None);
    }
    let Some((op, flags)) = order(task.op, task.encoding) else {
        let message = "this encoding is not for this operation";
        return (Kept::failure(task, Code::ProtocolError, failure(Code::ProtocolError, message, &[])), None);
    };
    let result = seat.live.call(op, flags, &task.payload).await;
    settle(shared, task, result)
}

/// A JSON-RPC request: tools.
async fn call(shared: &Arc<Shared>, seat: &Seat, task: &Task) -> Kept {
    let text = String::from_utf8_lossy(&task.payload);
    let (id, result) = match rpc::Call::parse(&text, &seat.live.served.validation.pydantic) {
        Err((id, failure)) => (id, Err(failure)),
        Ok(call) => (call.id.clone().unwrap_or(Value::Null), mcp::call_in(shared, Some(&seat.live), seat.live.client, &call).await),
    };
    let payload = rpc::reply(&id, result).to_string().into_bytes();
    Kept { status: 0, ..Kept::failure(task, Code::ExecutionError, payload) }
}

/// A worker's reply, or the end of the session, as the answer to keep.
fn settle(shared: &Shared, task: &Task, result: Result<Reply, Ended>) -> (Kept, Option<Code>) {
    let reply = match result {
        Ok(reply) => reply,
        Err(ended) => {
            let payload = failure(ended.code, &ended.message, &ended.more);
            return (Kept::failure(task, ended.code, payload), Some(ended.code));
        }
    };
    if reply.kind != Answer::Ok {
        return (failed(shared, task, &reply), None);
    }
    let most = shared.config.most_message;
    if reply.payload.len() > most {
        shared.metrics.error(Code::ReplyTooLarge.name());
        let message = format!("the answer has {} bytes, a message has at most {most}", reply.payload.len());
        return (Kept::failure(task, Code::ReplyTooLarge, failure(Code::ReplyTooLarge, &message, &[])), None);
    }
    if shared.config.strict && reply.flags & frame::NOT_FINITE != 0 {
        shared.metrics.error(Code::ExecutionError.name());
        let message = "the answer has a NaN or an infinity, which JSON cannot carry";
        return (Kept::failure(task, Code::ExecutionError, failure(Code::ExecutionError, message, &[])), None);
    }
    let encoding = if task.op == Op::Render { Encoding::Msgpack } else { task.encoding };
    let bit = |of: u8, to: u8| if reply.flags & of == 0 { 0 } else { to };
    let flags = encoding as u8
        | bit(frame::DONE, DONE)
        | bit(frame::NOT_FINITE, NOT_FINITE)
        | bit(frame::TERMINATED, TERMINATED)
        | bit(frame::TRUNCATED, TRUNCATED);
    (Kept { op: task.op as u8, flags, status: 0, sequence: task.sequence, request: task.request, payload: reply.payload }, None)
}

fn invalid(items: &[u8]) -> Vec<u8> {
    let errors = [("errors", String::from_utf8_lossy(items).into_owned())];
    failure(Code::ValidationError, "Invalid message", &errors)
}

fn failed(shared: &Shared, task: &Task, reply: &Reply) -> Kept {
    if reply.kind == Answer::Invalid {
        shared.metrics.error(Code::ValidationError.name());
        return Kept::failure(task, Code::ValidationError, invalid(&reply.payload));
    }
    let told: Value = serde_json::from_slice(&reply.payload).unwrap_or_default();
    let code = told["code"].as_str().and_then(Code::from_name).unwrap_or(Code::ExecutionError);
    shared.metrics.error(code.name());
    let mut more = Vec::new();
    if let Some(exception) = told["exception"].as_str() {
        more.push(("exception", Value::from(exception).to_string()));
    }
    Kept::failure(task, code, failure(code, told["message"].as_str().unwrap_or_default(), &more))
}

/// Requests of many sessions that came in one frame and can begin now.
pub(super) struct Group {
    pub(super) op: Op,
    pub(super) encoding: Encoding,
    pub(super) request: u64,
    pub(super) contract: u16,
    pub(super) tasks: Vec<(Arc<Seat>, Task)>,
}

impl Group {
    /// Answers a frame without entries.
    pub(super) fn tell_nothing(self, outbox: &Outbox) {
        Heading { op: self.op, encoding: self.encoding, request: self.request, contract: self.contract }.push(outbox, &[]);
    }

    /// Asks all at once; what is answered at once leaves at once, the rest worker by worker.
    pub(super) fn begin(self, shared: &Arc<Shared>, outbox: &Arc<Outbox>) {
        let began = Instant::now();
        let mut answered = Vec::with_capacity(self.tasks.len());
        let mut at_once = Vec::new();
        let mut workers: HashMap<u32, Vec<(Arc<Seat>, Task, Asking)>> = HashMap::new();
        for (seat, task) in self.tasks {
            if let Some(kept) = refused(shared, &seat, &task, began) {
                answered.push((seat, kept, None));
                continue;
            }
            let Some((op, flags)) = order(task.op, task.encoding) else { continue };
            match seat.live.try_ask(op, flags, &task.payload, began) {
                Some(Ok(asking)) if asking.is_answered() => at_once.push((seat, task, asking)),
                Some(Ok(asking)) => workers.entry(asking.worker()).or_default().push((seat, task, asking)),
                Some(Err(ended)) => {
                    let (kept, ended) = settle(shared, &task, Err(ended));
                    answered.push((seat, kept, ended));
                }
                // Something else holds the instance: it is asked when that is done.
                None => drop(tokio::spawn(run(shared.clone(), seat, task))),
            }
        }
        let now = Instant::now();
        for (seat, task, asking) in at_once {
            let result = seat.live.answered_now(asking, &task.payload, now);
            let (kept, ended) = settle(shared, &task, result);
            answered.push((seat, kept, ended));
        }
        let heading = Heading { op: self.op, encoding: self.encoding, request: self.request, contract: self.contract };
        if !answered.is_empty() {
            heading.tell(shared, outbox, answered);
        }
        for (_, asked) in workers {
            let (shared, outbox) = (shared.clone(), outbox.clone());
            tokio::spawn(async move {
                let mut answered = Vec::with_capacity(asked.len());
                for (seat, task, asking) in asked {
                    let result = seat.live.answered(asking, &task.payload).await;
                    let (kept, ended) = settle(&shared, &task, result);
                    answered.push((seat, kept, ended));
                }
                heading.tell(&shared, &outbox, answered);
            });
        }
    }
}

#[derive(Clone, Copy)]
struct Heading {
    op: Op,
    encoding: Encoding,
    request: u64,
    contract: u16,
}

impl Heading {
    /// Keeps the answers and sends them in as few frames as they fit in.
    fn tell(self, shared: &Arc<Shared>, outbox: &Arc<Outbox>, answered: Vec<(Arc<Seat>, Kept, Option<Code>)>) {
        let most = ONE_FRAME.min(shared.config.most_message);
        let mut told: Vec<Told> = Vec::with_capacity(answered.len());
        let mut waiting = Vec::new();
        let mut bytes = 0;
        for (seat, kept, ended) in answered {
            let payload: Bytes = kept.payload.clone();
            let one = Told { session: seat.number, sequence: kept.sequence, status: kept.status, flags: kept.flags, payload };
            // A session that another socket has taken over meanwhile is answered there, by itself.
            let (ours, next) = seat.done(kept, ended, Some(outbox));
            waiting.extend(next.map(|next| (seat, next)));
            if !ours {
                continue;
            }
            if bytes + one.payload.len() > most && !told.is_empty() {
                self.push(outbox, &std::mem::take(&mut told));
                bytes = 0;
            }
            bytes += one.payload.len();
            told.push(one);
        }
        if !told.is_empty() {
            self.push(outbox, &told);
        }
        // After this answer, so that the answers of a session are in order.
        for (seat, next) in waiting {
            tokio::spawn(run(shared.clone(), seat, next));
        }
    }

    fn push(self, outbox: &Outbox, told: &[Told]) {
        let mut payload = Vec::new();
        write_told(&mut payload, told, self.encoding == Encoding::Tensor);
        let header = Header {
            op: self.op as u8 | ANSWER,
            flags: self.encoding as u8,
            contract: self.contract,
            sequence: u32::try_from(told.len()).unwrap_or(u32::MAX),
            request: self.request,
            ..Header::default()
        };
        outbox.push(header, &payload);
    }
}
