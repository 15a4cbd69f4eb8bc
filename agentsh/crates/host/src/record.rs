//! The output of a session: the journal, and messages to the person at the terminal.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

use agentsh_base::types::ServerId;
use agentsh_sandbox::{Enforcement, State};
use agentsh_store::words::LayerState;
use agentsh_store::{Event, Journal};

use crate::standard_error::print_message;

/// Messages that are kept until the agent has ended; a program can cause them without end.
const MAX_HELD: usize = 500;

/// The journal, and messages for the user.
pub struct Record {
    pub journal: Journal,
    /// Messages wait for the end, since the agent draws on the terminal.
    holds: bool,
    agent_runs: Cell<bool>,
    is_quiet: Cell<bool>,
    held: RefCell<Vec<String>>,
    /// The number of messages beyond those that may be held.
    unheld: Cell<u64>,
    /// Refusals that happened while messages were held.
    refusals: RefCell<Vec<String>>,
    /// Why servers did not start, as reported to the user, and whether the user was told which tools are missing.
    pub told: RefCell<BTreeMap<String, bool>>,
}

impl Record {
    #[must_use]
    pub fn new(journal: Journal, holds: bool) -> Self {
        Self {
            journal,
            holds,
            agent_runs: Cell::new(false),
            is_quiet: Cell::new(false),
            held: RefCell::default(),
            unheld: Cell::new(0),
            refusals: RefCell::default(),
            told: RefCell::default(),
        }
    }

    /// The user wants no messages from here on.
    pub fn set_quiet(&self, is_quiet: bool) {
        self.is_quiet.set(is_quiet);
    }

    /// From here on the agent may draw on the terminal.
    pub fn agent_starts(&self) {
        self.agent_runs.set(true);
    }

    #[must_use]
    pub fn agent_runs(&self) -> bool {
        self.agent_runs.get()
    }

    /// Records which layers of the sandbox were enforced.
    pub fn enforcement(&self, server: Option<&ServerId>, layers: &[Enforcement]) {
        for layer in layers {
            self.journal.record(Event::Enforcement {
                server_id: server.cloned(),
                layer: layer.layer.clone(),
                asked: layer.asked.clone(),
                got: layer.got.clone(),
                state: match layer.state {
                    State::Enforced => LayerState::Enforced,
                    State::Degraded => LayerState::Degraded,
                    State::Absent => LayerState::Absent,
                },
                why: layer.why.clone(),
            });
        }
    }

    /// Tells the user, now or, where the agent draws on the terminal, when it has ended.
    pub fn note(&self, message: &str) {
        if self.is_quiet.get() {
            return;
        }
        let message = format!("agentsh: {message}");
        if self.holds {
            let mut held = self.held.borrow_mut();
            match held.len() < MAX_HELD {
                true => held.push(message),
                false => self.unheld.set(self.unheld.get() + 1),
            }
        } else {
            print_message(&message);
        }
    }

    /// Like [`Self::note`], for messages that the summary after a run repeats.
    pub fn note_refusal(&self, message: &str) {
        if self.holds {
            self.refusals.borrow_mut().push(message.to_owned());
        } else {
            self.note(message);
        }
    }

    /// Reports the held refusals, unless a summary with them follows.
    pub fn release_refusals(&self, summary_follows: bool) {
        for message in self.refusals.borrow_mut().drain(..).filter(|_| !summary_follows) {
            self.note(&message);
        }
    }

    /// Whether the program draws on the terminal, and messages wait for its end.
    #[must_use]
    pub fn draws_on_terminal(&self) -> bool {
        self.holds
    }

    /// Whether it does so now.
    #[must_use]
    pub fn agent_draws(&self) -> bool {
        self.holds && self.agent_runs.get()
    }

    /// Tells the user now: nothing draws on the terminal yet.
    pub fn announce(&self, message: &str) {
        print_message(&format!("agentsh: {message}"));
    }

    /// Like [`Self::note`], for something missing because of a server: once, and without the reason if that was reported.
    pub fn note_missing(&self, message: &str) {
        let mut told = self.told.borrow_mut();
        let known = told.iter_mut().find_map(|(why, lacks)| Some((message.find(why.as_str())?, lacks)));
        let news = match known {
            None => message,
            Some((_, true)) => return,
            Some((at, lacks)) => {
                *lacks = true;
                message.get(..at).unwrap_or_default().trim_end_matches([':', ' '])
            }
        };
        self.note(&agentsh_store::escape::line(news));
    }

    /// Shows what was held back.
    pub fn release_notes(&self) {
        for message in self.held.borrow_mut().drain(..) {
            print_message(&message);
        }
        match self.unheld.take() {
            0 => {}
            more => {
                print_message(&format!("agentsh: {more} more messages are hidden; see `agentsh mcp events`"))
            }
        }
    }
}
