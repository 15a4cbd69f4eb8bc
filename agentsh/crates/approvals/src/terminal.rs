//! A question on the terminal, if the agent does not use it: it has no terminal, or does one task without a person.
//! Until the answer all processes of the agent are stopped, so that none reads the answer or draws over the question.

use std::cell::Cell;
use std::fs::{File, OpenOptions};
use std::io::ErrorKind;
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use nix::sys::termios::{
    FlowArg, FlushArg, InputFlags, LocalFlags, OutputFlags, SetArg, Termios, tcflow, tcflush, tcgetattr,
    tcsetattr,
};
use nix::unistd::{getpgrp, tcgetpgrp};
use tokio::net::unix::pipe::{Receiver, Sender};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Mutex;
use tokio::task::AbortHandle;

use agentsh_base::paragraph;
use agentsh_sandbox::freeze::{Freezer, FrozenSandbox};
use agentsh_store::escape;
use agentsh_store::words::ApprovalScope;

use super::{Answer, Approvals, Item, notify, permanent_answer};
use crate::guarded_terminal::{RESET, understands_reset};
use agentsh_content::content::since_1970;

/// Lines of arguments that are shown.
const MAX_LINES: usize = 20;
/// Characters of one of them.
const MAX_CHARACTERS: usize = 400;
/// Bytes of an answer.
const MAX_TYPED: usize = 256;
/// The prompt after an invalid answer.
fn choice(item: &Item) -> &'static str {
    match item.path {
        Some(_) => "agentsh: y (once), s (for this session), n (no)? ",
        None => "agentsh: y (once), s (for this session), a (always, writes that rule), n (no)? ",
    }
}

const PROCESS_KEPT_RUNNING: &str =
    "agentsh: a process of the agent kept running, so this answer does not count\n";
/// The palette and the colours of text and background, as the person chose them.
const RESET_COLOURS: &[u8] = b"\x1b]104\x1b\\\x1b]110\x1b\\\x1b]111\x1b\\";
/// In terminals with kitty's protocol images cover text.
const NO_IMAGES: &[u8] = b"\x1b_Ga=d,q=2\x1b\\";
/// Saves terminal modes that the agent switched on: colours; keys, wrapping, cursor, screen, mouse, focus, paste. Before that,
/// ends states that would hide these sequences: VT52 mode, an open string.
const SAVE_SEQUENCES: &[u8] = b"\x1b<\x1b\\\x1b[#{\x1b[?1;7;25;47;1000;1002;1003;1004;1005;1006;1015;2004s";
/// Restores them. A terminal that does not know these sequences keeps the modes of the question.
const RESTORE_TERMINAL: &[u8] = b"\x1b[?1;7;25;47;1000;1002;1003;1004;1005;1006;1015;2004r\x1b[#}";

/// The terminal of an agent that leaves it alone.
#[derive(Clone)]
pub struct Terminal(Rc<Inner>);

struct Inner {
    /// Pid 1 of the agent's sandbox.
    init: u32,
    /// Its control group, by which the kernel holds it.
    group: Option<PathBuf>,
    /// The modes for a question: those before the run.
    modes: Termios,
    /// Held while a question is asked: one after the other.
    turn: Mutex<()>,
    holds: Cell<bool>,
}

/// A question that is on the terminal or waits for its turn; dropped, it is not asked any more.
pub struct PendingQuestion(AbortHandle);

impl Drop for PendingQuestion {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// How asking ended.
enum TerminalAnswer {
    Yes(ApprovalScope),
    No,
    /// Ctrl-C, the end of the terminal's input, or an answer while the agent ran: the question waits elsewhere.
    Nothing,
}

impl Terminal {
    /// None: the agent may be using its terminal. `is_headless`: it was started to do one task. `modes`: those of the terminal
    /// before the run.
    #[must_use]
    pub fn of(
        is_headless: bool,
        (init, group): (u32, Option<PathBuf>),
        modes: Option<Termios>,
    ) -> Option<Self> {
        let mut modes = modes?;
        modes.input_flags |= InputFlags::ICRNL;
        modes.output_flags |= OutputFlags::OPOST | OutputFlags::ONLCR;
        modes.local_flags |= BY_LINE;
        // With standard error elsewhere, whoever started agentsh reads it and may be the one who uses the terminal.
        let is_told_here = paragraph::is_terminal(&std::io::stderr());
        let has_neither =
            !paragraph::is_terminal(&std::io::stdin()) && !paragraph::is_terminal(&std::io::stdout());
        let leaves_it = is_told_here && (is_headless || has_neither);
        let inner = Inner { init, group, modes, turn: Mutex::new(()), holds: Cell::new(false) };
        leaves_it.then(|| Self(Rc::new(inner)))
    }

    /// Whether the agent is stopped for a question.
    #[must_use]
    pub fn has_paused_the_agent(&self) -> bool {
        self.0.holds.get()
    }

    /// Whether a person could be asked now.
    #[must_use]
    pub fn is_free(&self) -> bool {
        free().is_some()
    }

    /// Asks until there is an answer, or the question is over. None: not here. Must be called inside a `LocalSet`.
    pub fn ask(&self, approvals: &Approvals, item: &Item) -> Option<PendingQuestion> {
        free()?;
        let (terminal, approvals, item) = (self.clone(), approvals.clone(), item.clone());
        notify::notify_desktop(&approvals.0.session.facts, &item);
        let task = agentsh_base::task::spawn_local(async move {
            let turn = terminal.0.turn.lock().await;
            let answer = terminal.until_answered(&approvals, &item).await;
            drop(turn);
            match answer {
                Some((is_yes, scope, by)) => {
                    approvals.answer(&item.id, is_yes, scope, by);
                }
                None => notify::notify_user(&approvals.0.session.facts, &approvals.0.session.record, &item),
            }
        });
        Some(PendingQuestion(task.abort_handle()))
    }

    /// None: the person gave no answer, or the terminal was in use when the question's turn came.
    async fn until_answered(&self, approvals: &Approvals, item: &Item) -> Option<Answer> {
        let freezer = match &self.0.group {
            Some(directory) => Freezer::group(directory),
            None => Freezer::signals(self.0.init, true),
        };
        let _held = AgentPause::begin(&self.0.holds);
        let still = tokio::task::spawn_blocking(move || FrozenSandbox::begin(freezer)).await.ok()?.ok()?;
        // Looked at once more: until now the agent could have changed it.
        let terminal = free()?;
        let modes = tcgetattr(&terminal).ok()?;
        let screen = Sender::from_file_unchecked(terminal.try_clone().ok()?).ok()?;
        let keys = Receiver::from_file_unchecked(terminal).ok()?;
        let still = Arc::new(still);
        let shown = TerminalQuestion { screen, keys, modes, still, is_over: Cell::new(false) };
        // Keys typed before the question are not an answer.
        tcflush(&shown.keys, FlushArg::TCIFLUSH).ok()?;
        // The agent may have stopped what is written there.
        tcflow(&shown.screen, FlowArg::TCOON).ok()?;
        // They may also have set terminal modes.
        tcsetattr(&shown.screen, SetArg::TCSANOW, &self.0.modes).ok()?;
        let config = &approvals.0.session.facts.context.config;
        let line = permanent_answer::lasting_line(item, false);
        if understands_reset() {
            // Modes that the agent switched on would hide the question or change its appearance.
            shown.write(SAVE_SEQUENCES).await.ok()?;
            shown.write(RESET).await.ok()?;
            shown.write(RESET_COLOURS).await.ok()?;
            shown.write(NO_IMAGES).await.ok()?;
        }
        shown.write_text(&question(item, &line)).await.ok()?;
        let said = loop {
            shown.write_text(choice(item)).await.ok()?;
            let said = shown.answer(choice(item)).await;
            // A process that kept running may have painted over the question, or typed into it.
            if !matches!(said, TerminalAnswer::Nothing) && !shown.has_stayed_still().await {
                shown.write_text(PROCESS_KEPT_RUNNING).await.ok()?;
                break TerminalAnswer::Nothing;
            }
            match said {
                TerminalAnswer::Yes(ApprovalScope::Always) => {
                    match permanent_answer::remember(config, item, false) {
                        Ok(written) => {
                            shown.write_text(&format!("agentsh: {written}\n")).await.ok()?;
                            break TerminalAnswer::Yes(ApprovalScope::Always);
                        }
                        Err(why) => {
                            let why = format!("agentsh: nothing was approved: {}\n", escape::line(&why));
                            shown.write_text(&why).await.ok()?;
                        }
                    }
                }
                said => break said,
            }
        };
        shown.is_over.set(true);
        let by = "the terminal".to_owned();
        match said {
            TerminalAnswer::Yes(scope) => Some((true, scope, by)),
            TerminalAnswer::No => Some((false, ApprovalScope::Session, by)),
            TerminalAnswer::Nothing => None,
        }
    }
}

/// The time in which the agent's stop is not the person's.
struct AgentPause<'a>(&'a Cell<bool>);

impl<'a> AgentPause<'a> {
    fn begin(holds: &'a Cell<bool>) -> Self {
        holds.set(true);
        Self(holds)
    }
}

impl Drop for AgentPause<'_> {
    fn drop(&mut self) {
        self.0.set(false);
    }
}

/// A question on the terminal. Dropped without an answer: it was answered elsewhere, or the time is over.
struct TerminalQuestion {
    /// Two handles of the same terminal. These types are for pipes, but nothing in them needs one except a check, which is
    /// skipped.
    screen: Sender,
    keys: Receiver,
    /// The agent's, which it finds again.
    modes: Termios,
    still: Arc<FrozenSandbox>,
    is_over: Cell<bool>,
}

impl Drop for TerminalQuestion {
    fn drop(&mut self) {
        // The terminal may be closed: ignore that.
        if !self.is_over.get() {
            let _ = self.screen.try_write(b"\nagentsh: that question has expired\n");
        }
        if understands_reset() {
            let _ = self.screen.try_write(RESTORE_TERMINAL);
        }
        let _ = tcsetattr(&self.screen, SetArg::TCSANOW, &self.modes);
    }
}

impl TerminalQuestion {
    async fn has_stayed_still(&self) -> bool {
        let still = Arc::clone(&self.still);
        tokio::task::spawn_blocking(move || still.has_not_run()).await.unwrap_or(false)
    }

    async fn write_text(&self, text: &str) -> std::io::Result<()> {
        self.write(text.as_bytes()).await
    }

    async fn write(&self, mut rest: &[u8]) -> std::io::Result<()> {
        while !rest.is_empty() {
            self.screen.writable().await?;
            match self.screen.try_write(rest) {
                Ok(written) => rest = rest.get(written..).unwrap_or_default(),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// The first line that is an answer.
    async fn answer(&self, choice: &str) -> TerminalAnswer {
        let Ok(mut interrupt) = signal(SignalKind::interrupt()) else { return TerminalAnswer::Nothing };
        loop {
            let line = tokio::select! {
                line = self.line() => line,
                _ = interrupt.recv() => None,
            };
            match line.as_deref().map(str::trim) {
                None => return TerminalAnswer::Nothing,
                Some("y" | "Y" | "yes") => return TerminalAnswer::Yes(ApprovalScope::Once),
                Some("s" | "S" | "session") => return TerminalAnswer::Yes(ApprovalScope::Session),
                Some("a" | "A" | "always") => return TerminalAnswer::Yes(ApprovalScope::Always),
                Some("n" | "N" | "no") => return TerminalAnswer::No,
                Some(_) => {
                    if self.write_text(choice).await.is_err() {
                        return TerminalAnswer::Nothing;
                    }
                }
            }
        }
    }

    /// The text typed until Enter. None: no more input.
    async fn line(&self) -> Option<String> {
        let mut typed = Vec::new();
        loop {
            self.keys.readable().await.ok()?;
            let mut bytes = [0; MAX_TYPED];
            let read = match self.keys.try_read(&mut bytes) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => continue,
                read => read.ok().filter(|read| *read > 0)?,
            };
            typed.extend_from_slice(bytes.get(..read)?);
            if typed.ends_with(b"\n") || typed.len() > MAX_TYPED {
                return Some(String::from_utf8_lossy(&typed).into_owned());
            }
        }
    }
}

/// Keys come line by line, are shown, and mean signals.
const BY_LINE: LocalFlags = LocalFlags::ICANON.union(LocalFlags::ECHO).union(LocalFlags::ISIG);

/// The terminal, if its input belongs to this job and is in line mode: a program that reads single keys is using it.
fn free() -> Option<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY | libc::O_CLOEXEC);
    let terminal = options.open("/dev/tty").ok()?;
    let is_ours = tcgetpgrp(&terminal) == Ok(getpgrp());
    (is_ours && is_line_mode(&terminal)).then_some(terminal)
}

/// False where a program reads single keys, and so draws on this terminal.
pub fn is_line_mode(terminal: &impl AsFd) -> bool {
    tcgetattr(terminal).is_ok_and(|modes| modes.local_flags.contains(BY_LINE))
}

/// Everything that an answer is bound to, made safe to show.
fn question(item: &Item, line: &str) -> String {
    let left = Duration::from_secs(item.expires_at.saturating_sub(since_1970().as_secs()));
    let mut text =
        format!("\nagentsh: {}\n  rule: {}\n", notify::question_subject(item), escape::line(&item.rule));
    if let Some(from) = &item.from {
        text.push_str(&format!("  contains data from server '{}'\n", escape::line(from)));
    }
    for shown in item.arguments.lines().take(MAX_LINES) {
        text.push_str(&format!("  {}\n", escape::shorten(&escape::line(shown), MAX_CHARACTERS)));
    }
    let is_cut = item.arguments.lines().nth(MAX_LINES).is_some()
        || item.arguments.lines().any(|line| line.chars().count() > MAX_CHARACTERS);
    if is_cut {
        text.push_str(&format!("  ... `agentsh approvals show {}` has all of it\n", item.id));
    }
    if !line.is_empty() {
        text.push_str(&format!("  always would write: {}\n", escape::line(line)));
    }
    text.push_str(&format!("  the agent is paused until you answer, at most {} s\n", left.as_secs()));
    text
}
