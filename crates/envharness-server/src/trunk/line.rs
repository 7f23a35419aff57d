//! The requests of one session, in their order: each is carried out once, and its answer is kept until it has arrived. No I/O.

use std::collections::VecDeque;
use std::time::Instant;

use bytes::Bytes;
use envharness_wire::Code;
use envharness_wire::v1::{Encoding, Op, WINDOW};

/// A request of a session.
#[derive(Debug, Clone)]
pub(super) struct Task {
    pub(super) op: Op,
    pub(super) encoding: Encoding,
    pub(super) sequence: u32,
    pub(super) request: u64,
    /// Until when it may begin.
    pub(super) until: Option<Instant>,
    /// Whether it shall not begin any more.
    pub(super) cancelled: bool,
    pub(super) payload: Bytes,
}

/// An answer, kept until the client has it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Kept {
    pub(super) op: u8,
    pub(super) flags: u8,
    pub(super) status: u16,
    pub(super) sequence: u32,
    pub(super) request: u64,
    pub(super) payload: Bytes,
}

impl Kept {
    /// The answer that a task failed.
    pub(super) fn failure(task: &Task, code: Code, payload: impl Into<Bytes>) -> Self {
        let Task { op, sequence, request, .. } = *task;
        Self { op: op as u8, flags: 0, status: code.number(), sequence, request, payload: payload.into() }
    }
}

/// What becomes of a request that came in.
#[derive(Debug)]
pub(super) enum Verdict {
    /// It is carried out now.
    Run(Task),
    /// It waits or is under way; its answer comes.
    Wait,
    /// It was answered before; this is the answer again.
    Again(Kept),
    /// The session has ended; this is its answer.
    Over(Kept),
    /// It has no place in the session, and why.
    Refuse(Task, String),
}

/// A request that is under way.
#[derive(Debug, Clone, Copy)]
struct Running {
    sequence: u32,
    op: Op,
    request: u64,
    /// Whether it was sent a second time meanwhile: its answer is for whoever did, by itself.
    resent: bool,
}

impl Running {
    fn of(task: &Task) -> Self {
        Self { sequence: task.sequence, op: task.op, request: task.request, resent: false }
    }
}

/// What is to be done when a request has its answer.
#[derive(Debug)]
pub(super) struct Done {
    /// The answer, as it was kept.
    pub(super) kept: Kept,
    /// Whether it was sent again while it was under way.
    pub(super) resent: bool,
    /// The answers of those that waited, where the session has ended.
    pub(super) over: Vec<Kept>,
    /// The request that runs now.
    pub(super) next: Option<Task>,
}

/// How far `a` is after `b`. Sequences go round: after the last comes 0.
fn after(a: u32, b: u32) -> i32 {
    a.wrapping_sub(b).cast_signed()
}

/// The requests of a session.
#[derive(Debug)]
pub(super) struct Line {
    next: u32,
    running: Option<Running>,
    waiting: VecDeque<Task>,
    kept: VecDeque<Kept>,
    ended: Option<(Code, Bytes)>,
}

impl Line {
    pub(super) fn new() -> Self {
        Self { next: 1, running: None, waiting: VecDeque::new(), kept: VecDeque::new(), ended: None }
    }

    /// The sequence that is expected next.
    pub(super) fn next(&self) -> u32 {
        self.next
    }

    /// Whether all requests fail from now on.
    pub(super) fn has_ended(&self) -> bool {
        self.ended.is_some()
    }

    /// Whether a request runs.
    pub(super) fn is_running(&self) -> bool {
        self.running.is_some()
    }

    /// Takes a request in; `ack` is the last sequence whose answer, and all before it, has arrived.
    pub(super) fn accept(&mut self, task: Task, ack: u32) -> Verdict {
        self.kept.retain(|kept| after(kept.sequence, ack) > 0);
        let place = after(task.sequence, self.next);
        if place < 0 {
            return self.again(task);
        }
        if place > 0 {
            let why = format!("sequence {} came where {} is next", task.sequence, self.next);
            return Verdict::Refuse(task, why);
        }
        let most = WINDOW as usize;
        // What is not acknowledged is kept, so that the window bounds both.
        if after(task.sequence, ack) > WINDOW.cast_signed() || self.waiting.len() + usize::from(self.running.is_some()) >= most {
            return Verdict::Refuse(task, format!("{most} requests are unanswered or not acknowledged already"));
        }
        self.next = self.next.wrapping_add(1);
        if let Some((code, payload)) = &self.ended {
            let kept = Kept::failure(&task, *code, payload.clone());
            self.kept.push_back(kept.clone());
            return Verdict::Over(kept);
        }
        if self.running.is_some() {
            self.waiting.push_back(task);
            return Verdict::Wait;
        }
        self.running = Some(Running::of(&task));
        Verdict::Run(task)
    }

    /// A sequence that came before. Its answer is for the request as it was sent last.
    fn again(&mut self, task: Task) -> Verdict {
        let Task { op, sequence, request, .. } = task;
        if let Some(kept) = self.kept.iter_mut().find(|kept| kept.sequence == sequence) {
            (kept.op, kept.request) = (op as u8, request);
            return Verdict::Again(kept.clone());
        }
        if let Some(running) = self.running.as_mut().filter(|running| running.sequence == sequence) {
            *running = Running { sequence, op, request, resent: true };
            return Verdict::Wait;
        }
        if let Some(waiting) = self.waiting.iter_mut().find(|waiting| waiting.sequence == sequence) {
            (waiting.op, waiting.request) = (op, request);
            return Verdict::Wait;
        }
        Verdict::Refuse(task, format!("sequence {sequence} was answered and acknowledged"))
    }

    /// Forgets a request that has not begun. It keeps its place: what comes after it must not overtake what is under way.
    pub(super) fn cancel(&mut self, request: u64) {
        if let Some(task) = self.waiting.iter_mut().find(|task| task.request == request) {
            task.cancelled = true;
        }
    }

    /// What runs has its answer. `ended` is the code with which the session has ended by it.
    pub(super) fn done(&mut self, mut kept: Kept, ended: Option<Code>) -> Done {
        let running = self.running.take();
        if let Some(running) = running {
            (kept.op, kept.request) = (running.op as u8, running.request);
        }
        self.kept.push_back(kept.clone());
        let over = ended.map(|code| self.end(code, &kept.payload)).unwrap_or_default();
        let next = self.waiting.pop_front();
        self.running = next.as_ref().map(Running::of);
        Done { kept, resent: running.is_some_and(|running| running.resent), over, next }
    }

    /// All requests that have not begun fail, and all that come. Gives the answers of those that are here.
    pub(super) fn end(&mut self, code: Code, payload: &Bytes) -> Vec<Kept> {
        let (code, payload) = self.ended.get_or_insert_with(|| (code, payload.clone()));
        let over: Vec<Kept> = self.waiting.drain(..).map(|task| Kept::failure(&task, *code, payload.clone())).collect();
        self.kept.extend(over.iter().cloned());
        over
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;

    fn task(sequence: u32, request: u64) -> Task {
        Task { op: Op::Step, encoding: Encoding::Json, sequence, request, until: None, cancelled: false, payload: Bytes::new() }
    }

    fn answer(task: &Task) -> Kept {
        let payload = Bytes::from(task.sequence.to_string());
        Kept { op: task.op as u8, flags: 0, status: 0, sequence: task.sequence, request: task.request, payload }
    }

    fn runs(line: &mut Line, sequence: u32, ack: u32) -> Task {
        match line.accept(task(sequence, u64::from(sequence)), ack) {
            Verdict::Run(task) => task,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_request_sent_again_is_not_carried_out_again() {
        let mut line = Line::new();
        let first = runs(&mut line, 1, 0);
        assert!(matches!(line.accept(task(1, 70), 0), Verdict::Wait));
        let done = line.done(answer(&first), None);
        assert_eq!((done.kept.request, done.resent), (70, true));
        let Verdict::Again(kept) = line.accept(Task { op: Op::StepMany, ..task(1, 71) }, 0) else { panic!("it is kept") };
        assert_eq!((kept.op, kept.request, &kept.payload[..]), (Op::StepMany as u8, 71, &b"1"[..]));
        // With the acknowledgement it is gone.
        assert!(matches!(line.accept(task(1, 72), 1), Verdict::Refuse(..)));
        assert_eq!(line.next(), 2);
    }

    #[test]
    fn gaps_and_what_is_beyond_the_window_use_no_place_up() {
        let mut line = Line::new();
        assert!(matches!(line.accept(task(2, 0), 0), Verdict::Refuse(..)));
        assert!(matches!(line.accept(task(0, 0), 0), Verdict::Refuse(..)));
        let first = runs(&mut line, 1, 0);
        for sequence in 2..=WINDOW {
            assert!(matches!(line.accept(task(sequence, 0), 0), Verdict::Wait));
        }
        assert!(matches!(line.accept(task(WINDOW + 1, 0), 0), Verdict::Refuse(..)));
        let mut next = line.done(answer(&first), None).next;
        // Answered, but not acknowledged, nor believed where it cannot be.
        assert!(matches!(line.accept(task(WINDOW + 1, 0), 0), Verdict::Refuse(..)));
        assert!(matches!(line.accept(task(WINDOW + 1, 0), 1), Verdict::Wait));
        assert!(matches!(line.accept(task(WINDOW + 2, 0), WINDOW + 1), Verdict::Refuse(..)));
        while let Some(task) = next {
            next = line.done(answer(&task), None).next;
        }
        assert_eq!(line.next(), WINDOW + 2);
    }

    #[test]
    fn the_end_answers_what_waits_and_what_comes() {
        let mut line = Line::new();
        let first = runs(&mut line, 1, 0);
        assert!(matches!(line.accept(task(2, 2), 0), Verdict::Wait));
        assert!(matches!(line.accept(task(3, 3), 0), Verdict::Wait));
        let done = line.done(Kept::failure(&first, Code::WorkerDied, "gone"), Some(Code::WorkerDied));
        assert_eq!(done.over.iter().map(|kept| (kept.sequence, kept.status)).collect::<Vec<_>>(), [(2, 8), (3, 8)]);
        assert!(done.next.is_none() && !line.is_running());
        let Verdict::Over(kept) = line.accept(task(4, 4), 0) else { panic!("it has ended") };
        assert_eq!((kept.status, &kept.payload[..]), (8, &b"gone"[..]));
        for sequence in 1..=4 {
            assert!(matches!(line.accept(task(sequence, 9), 0), Verdict::Again(_)));
        }
        // The first reason stays.
        assert!(line.end(Code::SessionError, &Bytes::from_static(b"closed")).is_empty());
        let Verdict::Over(kept) = line.accept(task(5, 5), 4) else { panic!("it has ended") };
        assert_eq!(kept.status, 8);
    }

    #[test]
    fn an_end_during_a_request_leaves_that_one_its_answer() {
        let mut line = Line::new();
        let first = runs(&mut line, 1, 0);
        assert!(matches!(line.accept(task(2, 2), 0), Verdict::Wait));
        let over = line.end(Code::SessionError, &Bytes::from_static(b"closed"));
        assert_eq!(over.len(), 1);
        let done = line.done(answer(&first), None);
        assert_eq!((done.kept.status, done.next.is_none()), (0, true));
        assert!(matches!(line.accept(task(1, 1), 0), Verdict::Again(kept) if kept.status == 0));
    }

    #[test]
    fn a_cancelled_request_keeps_its_place() {
        let mut line = Line::new();
        let first = runs(&mut line, 1, 0);
        assert!(matches!(line.accept(task(2, 2), 0), Verdict::Wait));
        line.cancel(1);
        line.cancel(2);
        let next = line.done(answer(&first), None).next.unwrap();
        assert!(next.cancelled && next.sequence == 2);
    }

    /// A client that loses and repeats messages as it likes, against one line.
    fn lossy(start: u32, moves: &[(u8, u8)]) {
        let mut line = Line { next: start, ..Line::new() };
        // Of the client: the first without an answer, the first that was never sent.
        let (mut first, mut fresh) = (start, start);
        let mut running: Option<Task> = None;
        let mut carried_out = Vec::new();
        let mut arrived = VecDeque::new();
        for (what, which) in moves {
            match what % 4 {
                // Sends a new one, or one again that has no answer yet.
                0 | 1 => {
                    let unanswered = fresh.wrapping_sub(first);
                    let new = what % 4 == 0 && unanswered < WINDOW || unanswered == 0;
                    let sequence = if new { fresh } else { first.wrapping_add(u32::from(*which) % unanswered) };
                    fresh = if new { fresh.wrapping_add(1) } else { fresh };
                    match line.accept(task(sequence, 0), first.wrapping_sub(1)) {
                        Verdict::Run(task) => running = Some(task),
                        Verdict::Again(kept) => arrived.push_back(kept.sequence),
                        Verdict::Wait => {}
                        other => panic!("{other:?}"),
                    }
                }
                2 => {
                    if let Some(task) = running.take() {
                        carried_out.push(task.sequence);
                        let done = line.done(answer(&task), None);
                        running = done.next;
                        // One answer in two is lost.
                        if which % 2 == 0 {
                            arrived.push_back(done.kept.sequence);
                        }
                    }
                }
                _ => {
                    for sequence in arrived.drain(..) {
                        if sequence == first {
                            first = first.wrapping_add(1);
                        }
                    }
                }
            }
        }
        let wanted: Vec<u32> = (0..carried_out.len()).map(|at| start.wrapping_add(u32::try_from(at).unwrap())).collect();
        assert_eq!(carried_out, wanted);
        assert!(line.kept.len() <= WINDOW as usize);
    }

    fn lossy_many(start: u32) {
        let mut random = envharness_native::SplitMix64::new(7);
        for _ in 0..300 {
            let moves: Vec<(u8, u8)> = (0..300).map(|_| random.next_u64().to_le_bytes()).map(|bytes| (bytes[0], bytes[1])).collect();
            lossy(start, &moves);
        }
    }

    #[test]
    fn whatever_is_lost_each_is_carried_out_once_and_in_order() {
        lossy_many(1);
    }

    #[test]
    fn sequences_go_round() {
        lossy_many(u32::MAX - 5);
    }
}
