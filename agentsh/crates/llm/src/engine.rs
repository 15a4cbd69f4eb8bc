//! A streamed answer, event by event. Holds events of an incomplete call, or of text that may begin the canary, and all
//! events after them; forwards the others unchanged at once.

use std::collections::{BTreeMap, VecDeque};

use crate::arguments::ArgumentsState;
use crate::canary::{Needle, Search};
use crate::dialect::{Channel, Dialect, EventTarget, Key, Piece, Rulings, dialect};
use crate::json::{self, Json};
use crate::route::Provider;
use crate::sse::{Frame, Framer};
use crate::usage::Usage;
use crate::{Call, INCOMPLETE_ARGUMENTS, LlmError, MAX_DEPTH, MAX_HELD, NO_NAME, TOKEN_LIMIT};

/// Decides about calls.
pub trait Judge {
    fn judge(&mut self, call: &Call) -> Ruling;
}

/// The decision about a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ruling {
    Allow,
    /// With the reason for the agent.
    Block(String),
}

/// What happened, for the journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EngineEvent {
    Blocked {
        call: Call,
        reason: String,
    },
    /// The answer contained the needle and was replaced.
    Leaked,
}

struct Slot {
    frame: Frame,
    at: EventTarget,
    /// For each channel, the end of this event's text in it, in folded characters.
    texts: Vec<(Channel, usize)>,
}

/// One streamed answer.
pub struct Stream {
    framer: Framer,
    dialect: Box<dyn Dialect + Send>,
    slots: VecDeque<Slot>,
    held: usize,
    drafts: BTreeMap<Key, Call>,
    rulings: Rulings,
    needle: Option<Needle>,
    replacement: String,
    searches: BTreeMap<Channel, Search>,
    /// Texts so far, if the whole is needed.
    said: BTreeMap<Channel, String>,
    told: Vec<EngineEvent>,
    usage: Usage,
    /// The last event has arrived.
    is_over: bool,
    /// It reached its token limit.
    is_cut: bool,
    /// Nothing follows, so it is known why a call is incomplete.
    is_closing: bool,
    /// Something was dropped that clients ignore.
    has_dropped: bool,
    ended: bool,
}

/// The end of OpenAI's streams, and of gateways'.
pub(crate) const DONE: &str = "[DONE]";

impl Stream {
    /// With the request's needle, if it has one.
    #[must_use]
    pub fn new(provider: Provider, needle: Option<Needle>, replacement: &str) -> Self {
        Self {
            framer: if provider == Provider::Ollama { Framer::of_lines() } else { Framer::default() },
            dialect: dialect(provider),
            slots: VecDeque::new(),
            held: 0,
            drafts: BTreeMap::new(),
            rulings: Rulings::new(),
            needle,
            replacement: replacement.to_owned(),
            searches: BTreeMap::new(),
            said: BTreeMap::new(),
            told: Vec::new(),
            usage: Usage::default(),
            is_over: false,
            is_cut: false,
            is_closing: false,
            has_dropped: false,
            ended: false,
        }
    }

    /// The agent asked for several answers at once.
    #[must_use]
    pub fn of_choices(mut self) -> Self {
        self.dialect.expect_choices();
        self
    }

    /// Takes the model's bytes and appends those for the agent.
    ///
    /// # Errors
    /// When the answer cannot be parsed: only what was appended may be sent.
    pub fn push(&mut self, bytes: &[u8], judge: &mut dyn Judge, out: &mut Vec<u8>) -> Result<(), LlmError> {
        let mut frames = Vec::new();
        let read = self.framer.push(bytes, &mut frames);
        for frame in frames {
            self.take(frame, judge, out)?;
        }
        if self.ended { Ok(()) } else { read }
    }

    /// The model's stream has ended.
    ///
    /// # Errors
    /// Like [`Stream::push`].
    pub fn finish(&mut self, judge: &mut dyn Judge, out: &mut Vec<u8>) -> Result<(), LlmError> {
        if self.ended {
            return Ok(());
        }
        let last = self.framer.finish()?;
        let (event, rest) = match last {
            Some(frame) if event_data(&frame).is_none() && !frame.has_unknown => (None, frame.raw),
            event => (event, Vec::new()),
        };
        if let Some(frame) = event {
            self.take(frame, judge, out)?;
        }
        self.close(judge, out)?;
        // Its last line is incomplete, so nothing may follow.
        if !self.ended {
            out.extend_from_slice(&rest);
        }
        Ok(())
    }

    /// Events since the last call.
    pub fn take_events(&mut self) -> Vec<EngineEvent> {
        std::mem::take(&mut self.told)
    }

    /// Tokens so far.
    #[must_use]
    pub fn usage(&self) -> Usage {
        self.usage
    }

    /// Whether it is not forwarded byte by byte, even without refusals: clients would have parsed other calls, or it has
    /// ignored parts.
    #[must_use]
    pub fn is_changed(&self) -> bool {
        self.has_dropped || self.dialect.is_ambiguous()
    }

    /// The answer was replaced: the model may stop.
    #[must_use]
    pub fn is_ended(&self) -> bool {
        self.ended
    }

    fn take(&mut self, frame: Frame, judge: &mut dyn Judge, out: &mut Vec<u8>) -> Result<(), LlmError> {
        if self.ended {
            return Ok(());
        }
        let Some(data) = event_data(&frame) else {
            // A comment or an event without data only keeps the connection alive.
            if frame.has_unknown {
                self.has_dropped = true;
            } else {
                out.extend_from_slice(&frame.raw);
            }
            return Ok(());
        };
        // No client reads after the end. Some gateways append another API's end.
        if self.is_over {
            if data == DONE {
                out.extend_from_slice(&frame.raw);
            } else {
                self.has_dropped = true;
            }
            return Ok(());
        }
        let taken = match self.dialect.take(&frame.event, data) {
            // Clients ignore unknown names, such as gateways' heartbeats.
            Err(LlmError::Json(_)) if self.dialect.is_unknown(&frame.event) => {
                self.has_dropped = true;
                return Ok(());
            }
            taken => taken?,
        };
        self.usage.merge(taken.usage);
        self.is_cut |= taken.is_cut;
        if taken.is_ping {
            out.extend_from_slice(&frame.raw);
            return Ok(());
        }
        let mut slot = Slot { frame, at: taken.at, texts: Vec::new() };
        for (channel, text) in taken.texts {
            let Some(needle) = &self.needle else { continue };
            let search = self.searches.entry(channel).or_default();
            if needle.find(search, &text) {
                return self.leak(out);
            }
            slot.texts.push((channel, search.seen()));
            if needle.needs_whole() {
                self.said.entry(channel).or_default().push_str(&text);
            }
        }
        for piece in taken.pieces {
            self.draft(piece)?;
        }
        self.held += slot.frame.raw.len();
        self.slots.push_back(slot);
        for key in taken.complete {
            self.decide(key, judge);
            if self.holds_needle(key) {
                return self.leak(out);
            }
        }
        if taken.is_last {
            self.is_over = true;
            return self.close(judge, out);
        }
        self.release(out)?;
        if self.held > MAX_HELD { Err(LlmError::TooMuch) } else { Ok(()) }
    }

    /// # Errors
    /// When a judged call continues: a client might run something unjudged.
    fn draft(&mut self, piece: Piece) -> Result<(), LlmError> {
        if let Some((judged, _)) = self.rulings.get(&piece.key) {
            let is_repeated = piece.is_whole
                && piece.arguments == judged.arguments
                && piece.name.as_deref().is_none_or(|name| name == judged.name);
            // Some end a call with an empty piece.
            let is_empty = piece.name.is_none() && piece.arguments.is_empty();
            return if is_repeated || is_empty {
                Ok(())
            } else {
                Err(LlmError::Shape("a call continues after its end"))
            };
        }
        let draft = self
            .drafts
            .entry(piece.key)
            .or_insert_with(|| Call { at_provider: piece.at_provider, ..Call::default() });
        if draft.id.is_empty() {
            draft.id = piece.id.unwrap_or_default();
        }
        draft.namespace = draft.namespace.take().or(piece.namespace);
        // Some send the whole name once, some in pieces, some repeatedly.
        if let Some(name) = piece.name.filter(|name| *name != draft.name) {
            draft.name.push_str(&name);
        }
        if piece.is_whole {
            draft.arguments = piece.arguments;
        } else if piece.is_text && draft.arguments.pop().is_some() {
            // Without the quotation marks between them.
            draft.arguments.push_str(piece.arguments.strip_prefix('"').unwrap_or_default());
        } else {
            draft.arguments.push_str(&piece.arguments);
        }
        Ok(())
    }

    /// Once for each call.
    fn decide(&mut self, key: Key, judge: &mut dyn Judge) {
        if self.rulings.contains_key(&key) {
            return;
        }
        let Some(call) = self.drafts.remove(&key) else { return };
        // Some providers repeat every call in the last event.
        let before = self.rulings.values().find(|(known, _)| !call.id.is_empty() && *known == call);
        if let Some((_, ruling)) = before {
            let ruling = ruling.clone();
            self.rulings.insert(key, (call, ruling));
            return;
        }
        let ruling = judge_one(judge, &call, false);
        if let Ruling::Block(reason) = &ruling
            && reason != INCOMPLETE_ARGUMENTS
        {
            self.told.push(EngineEvent::Blocked { call: call.clone(), reason: reason.clone() });
        }
        self.rulings.insert(key, (call, ruling));
    }

    fn holds_needle(&self, key: Key) -> bool {
        let (Some(needle), Some((call, _))) = (&self.needle, self.rulings.get(&key)) else { return false };
        in_arguments(needle, &call.arguments)
    }

    /// Decides about everything that is still open, as received so far.
    fn close(&mut self, judge: &mut dyn Judge, out: &mut Vec<u8>) -> Result<(), LlmError> {
        let open: Vec<Key> = self.drafts.keys().copied().collect();
        for key in open {
            self.decide(key, judge);
            if self.holds_needle(key) {
                return self.leak(out);
            }
        }
        self.explain();
        let said = std::mem::take(&mut self.said);
        if self.needle.as_ref().is_some_and(|needle| said.values().any(|text| needle.is_in(text))) {
            return self.leak(out);
        }
        self.searches.values_mut().for_each(Search::end);
        self.release(out)
    }

    /// Says once of each incomplete call why it is.
    fn explain(&mut self) {
        let incomplete = self.rulings.values_mut().filter(|(_, ruling)| is_incomplete(ruling));
        if std::mem::replace(&mut self.is_closing, true) {
            return;
        }
        for (call, ruling) in incomplete {
            let reason = if self.is_cut { TOKEN_LIMIT } else { INCOMPLETE_ARGUMENTS };
            *ruling = Ruling::Block(reason.to_owned());
            let event = EngineEvent::Blocked { call: call.clone(), reason: reason.to_owned() };
            // A repeated one is told once.
            if !self.told.contains(&event) {
                self.told.push(event);
            }
        }
    }

    fn release(&mut self, out: &mut Vec<u8>) -> Result<(), LlmError> {
        while let Some(slot) = self.slots.front() {
            let is_decided = slot.at.keys.iter().all(|key| {
                let ruling = self.rulings.get(key).map(|(_, ruling)| ruling);
                ruling.is_some_and(|ruling| self.is_closing || !is_incomplete(ruling))
            });
            let is_cleared = slot.texts.iter().all(|(channel, end)| {
                self.searches.get(channel).is_none_or(|search| search.cleared_length() >= *end)
            });
            // Holds a text until all of it was searched.
            let is_whole = slot.texts.iter().all(|(channel, _)| !self.said.contains_key(channel));
            if !is_decided || !is_cleared || !is_whole {
                return Ok(());
            }
            let Some(slot) = self.slots.pop_front() else { return Ok(()) };
            self.held = self.held.saturating_sub(slot.frame.raw.len());
            let has_blocked = self.rulings.values().any(|(_, ruling)| matches!(ruling, Ruling::Block(_)));
            let is_written = (has_blocked || self.dialect.is_ambiguous())
                && self.dialect.rewrite(&slot.frame, &slot.at, &self.rulings, out)?;
            if !is_written {
                out.extend_from_slice(&slot.frame.raw);
            }
            self.dialect.note_sent(&slot.frame, &slot.at)?;
        }
        Ok(())
    }

    fn leak(&mut self, out: &mut Vec<u8>) -> Result<(), LlmError> {
        self.told.push(EngineEvent::Leaked);
        self.ended = true;
        self.slots.clear();
        self.drafts.clear();
        self.held = 0;
        self.dialect.leak(&self.replacement, self.usage, out);
        Ok(())
    }
}

fn event_data(frame: &Frame) -> Option<&str> {
    frame.data.as_deref().map(str::trim).filter(|data| !data.is_empty())
}

/// A call whose arguments are cut cannot be judged. Other arguments that are no JSON are left to the agent, which tells its model.
pub(crate) fn judge_one(judge: &mut dyn Judge, call: &Call, is_cut: bool) -> Ruling {
    let broken = |why: &str| Ruling::Block(why.to_owned());
    if call.name.is_empty() {
        return broken(NO_NAME);
    }
    let mut state = ArgumentsState::default();
    state.extend(&call.arguments);
    if state.is_in_object() {
        return broken(if is_cut { TOKEN_LIMIT } else { INCOMPLETE_ARGUMENTS });
    }
    judge.judge(call)
}

fn is_incomplete(ruling: &Ruling) -> bool {
    matches!(ruling, Ruling::Block(reason) if reason == INCOMPLETE_ARGUMENTS)
}

/// Whether arguments contain the needle.
pub(crate) fn in_arguments(needle: &Needle, arguments: &str) -> bool {
    fn contains_needle(value: &Json<'_>, needle: &Needle) -> bool {
        match value {
            Json::String(_) => value.as_text().is_some_and(|text| needle.is_in(&text)),
            Json::Array(items) => items.iter().any(|item| contains_needle(item, needle)),
            Json::Object(members) => members.iter().any(|(_, value)| contains_needle(value, needle)),
            Json::Null | Json::Bool(_) | Json::Number(_) => false,
        }
    }
    match json::read_to_depth(arguments.as_bytes(), MAX_DEPTH) {
        Ok(tree) => contains_needle(&tree, needle),
        Err(_) => needle.is_in(arguments),
    }
}
