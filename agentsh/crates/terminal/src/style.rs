//! Colour. It repeats what the words say, and `anstream` removes it in a pipe, with `NO_COLOR`, and in a terminal
//! without colours.

use std::io::Write;

use anstyle::{AnsiColor, Style};
use clap::builder::Styles;

use agentsh_base::paragraph::{self, Folding};

pub const HEADING: Style = Style::new().bold();
pub const QUIET: Style = Style::new().dimmed();
pub const GOOD: Style = AnsiColor::Green.on_default();
pub const LESS: Style = AnsiColor::Yellow.on_default();
pub const BAD: Style = AnsiColor::Red.on_default().bold();

/// Standard error, for everything that is not data. No line is wider than the terminal.
pub fn stderr() -> Folding<anstream::Stderr> {
    Folding::new(anstream::stderr(), paragraph::columns(&std::io::stderr()))
}

/// Sentences that are what a verb answers.
pub fn prose(out: &mut dyn Write) -> Folding<&mut dyn Write> {
    Folding::new(out, paragraph::columns(&std::io::stdout()))
}

/// Titles of columns whose cells are states.
const STATES: [&str; 4] = ["action", "state", "status", "severity"];

/// The style of help texts.
pub const HELP: Styles = Styles::styled()
    .header(HEADING)
    .usage(HEADING)
    .literal(AnsiColor::Cyan.on_default())
    .placeholder(QUIET)
    .error(BAD)
    .valid(GOOD)
    .invalid(LESS);

/// `text` in that style. Give it what is escaped already.
pub fn paint(style: Style, text: &str) -> String {
    if text.is_empty() || style == Style::new() {
        return text.to_owned();
    }
    format!("{style}{text}{style:#}")
}

/// How a cell of that column looks.
pub fn of_cell(title: &str, cell: &str) -> Style {
    if !STATES.contains(&title) {
        return Style::new();
    }
    match cell.split([' ', ':']).next().unwrap_or_default() {
        "allow" | "ended" | "exited" | "started" | "unchanged" => GOOD,
        "alert" | "rewrite" | "ask" | "open" | "none" | "changed" | "medium" | "undelivered" => LESS,
        "block" | "blocked" | "refused" | "crashed" | "killed" | "broken" | "high" | "critical" => BAD,
        _ => Style::new(),
    }
}

/// The lines of a report: titles are at the margin, and refused or weaker parts are emphasised.
pub fn report(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    let mut painted = String::with_capacity(text.len() + 256);
    for (line, next) in lines.iter().zip(lines.iter().skip(1).chain([&""])) {
        let is_title = !line.is_empty() && !line.starts_with(' ');
        let style = match *line {
            _ if !is_title => Style::new(),
            "refused" | "changed programs" | "rejected messages" if *next != "  nothing" => BAD,
            "not enforced" if *next != "  nothing" => LESS.bold(),
            _ => HEADING,
        };
        painted.push_str(&paint(style, line));
        painted.push('\n');
    }
    painted
}

/// The short summary after a run: its first words, up to the colon, say what a line is about.
pub fn summary(text: &str) -> String {
    let mut painted = String::with_capacity(text.len() + 256);
    for line in text.lines() {
        let words = line.trim_start();
        let (front, rest) = line.split_at(line.len() - words.len());
        let style = match words.split_once(':').map(|(topic, _)| topic) {
            Some("refused" | "rejected" | "changed program") => BAD,
            Some(topic) if topic.starts_with("not fully enforced") => LESS,
            Some("agentsh") => HEADING,
            _ => Style::new(),
        };
        let (topic, rest) = rest.split_at(rest.find(':').unwrap_or(0));
        painted.push_str(front);
        painted.push_str(&paint(style, topic));
        painted.push_str(rest);
        painted.push('\n');
    }
    painted
}
