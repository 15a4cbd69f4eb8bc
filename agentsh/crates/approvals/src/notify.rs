//! Notifies a person that a question is pending.

use std::io::{IsTerminal, Write};

use agentsh_store::escape;

use super::Item;
use super::terminal::is_line_mode;
use agentsh_host::host_programs;
use agentsh_host::{Facts, Record};

/// Tells the user at once, even while another program draws on the terminal.
pub fn notify_user(facts: &Facts, record: &Record, item: &Item) {
    notice(facts, record, &question_subject(item), &answer_commands(item));
}

/// The desktop alone: the question is on the terminal.
pub fn notify_desktop(facts: &Facts, item: &Item) {
    notify(facts, &question_subject(item), &answer_commands(item));
}

/// The subject of the question.
pub fn question_subject(item: &Item) -> String {
    let name = escape::line(&item.name);
    let who = match (&item.host, &item.path) {
        (Some(_), _) => format!("a connection to '{name}'"),
        (_, Some(_)) => format!("a change of '{name}'"),
        _ => {
            let client = item.client.as_ref().map(|client| format!(", for {},", escape::line(client)));
            format!("'{name}' of server '{}'{}", escape::line(&item.server), client.unwrap_or_default())
        }
    };
    let waits = if item.is_withheld() { " is not the trusted version, and" } else { "" };
    let why = if item.why.is_empty() { String::new() } else { format!(": {}", escape::line(&item.why)) };
    format!("{who}{waits} waits for your answer{why}")
}

fn answer_commands(item: &Item) -> String {
    format!(
        "`agentsh approvals show {}` shows it; `approve` or `deny` in place of `show` answers it",
        item.id
    )
}

/// Tells the user about a pending question and how to answer it, even while another program draws on the terminal.
pub fn notice(facts: &Facts, record: &Record, what: &str, how: &str) {
    if record.draws_on_terminal() && !is_line_mode(&std::io::stderr()) {
        // A program draws here: no text, but a notification of the terminal (OSC 9) and the bell. The outcome is reported
        // after the agent has ended.
        show_notification(what, "\x07");
    } else {
        record.announce(what);
        record.announce(&format!("  {how}"));
    }
    notify(facts, what, how);
}

/// Shows a notification of the terminal next to what a program draws, followed by `then`.
pub fn show_notification(what: &str, then: &str) {
    let notice: String = format!("agentsh: {what}").chars().filter(|c| !c.is_control()).take(200).collect();
    let mut terminal = std::io::stderr();
    if terminal.is_terminal() {
        // The reader may have closed it: ignore that.
        let _ = terminal.write_all(format!("\x1b]9;{notice}\x07{then}").as_bytes());
    }
}

/// Notifies that something was refused while the agent draws on the terminal. The whole text is printed when the agent
/// has ended. No bell, because nobody has to do anything.
pub fn hint(record: &Record, what: &str) {
    if record.draws_on_terminal() {
        show_notification(what, "");
    }
}

/// Tells the user at once what the agent cannot use, and how to change that, while the agent draws on the terminal. The whole
/// text is printed when the agent has ended.
pub fn tell_refused(facts: &Facts, record: &Record, what: &str, how: &str) {
    if record.draws_on_terminal() {
        show_notification(what, "");
        notify_as("agentsh", facts, what, how);
    }
}

/// A notification of the desktop, and a message of tmux, where these are.
fn notify(facts: &Facts, what: &str, how: &str) {
    notify_as("agentsh approvals", facts, what, how);
}

fn notify_as(title: &str, facts: &Facts, what: &str, how: &str) {
    let text = format!("agentsh: {what}");
    // Tmux shows nothing of OSC 9. In its messages `#` begins a format, which may run a command.
    let message = format!("{title}: {what}").replace(['#', '%'], "");
    let desktop = ["--app-name=agentsh", "--urgency=critical", "--", &text, how];
    let tmux = ["display-message", "-d", "20000", "--", &message];
    for (variable, program, words) in
        [("DBUS_SESSION_BUS_ADDRESS", "notify-send", &desktop[..]), ("TMUX", "tmux", &tmux[..])]
    {
        // Without the program there is no notification; the question is pending anyway.
        if facts.context.env.contains_key(variable)
            && let Some(mut command) = host_programs::command_of_system(program)
            && let Ok(mut child) = command.args(words).spawn()
        {
            tokio::task::spawn_blocking(move || child.wait());
        }
    }
}
