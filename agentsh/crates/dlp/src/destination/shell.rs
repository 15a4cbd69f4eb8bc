//! Hosts in commands that open connections or query name servers.

use super::bare::{give, is_certain, is_file_name};
use super::host::unreadable;
use super::shell_options::{HostPosition, option};
use super::shell_words::{UNKNOWN, Word, commands};
use super::{Destination, Form, Sink};
use agentsh_base::ascii::{self, Outlines};

/// How commands are nested in quotes that are looked into.
const MAX_DEPTH: usize = 3;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Every plain word is an address.
    Urls,
    /// The first plain word is a host.
    Host,
    /// Every plain word is a host.
    Hosts,
    /// `host:path`
    Copy,
    /// Every plain word with an `@` is where a message goes.
    Mail,
    /// Only the values of certain options.
    Options,
    Socat,
}

/// Sorted by name.
const TOOLS: [(&str, Kind); 58] = [
    ("aria2c", Kind::Urls),
    ("axel", Kind::Urls),
    ("curl", Kind::Urls),
    ("delv", Kind::Hosts),
    ("dig", Kind::Hosts),
    ("drill", Kind::Hosts),
    ("finger", Kind::Host),
    ("fping", Kind::Hosts),
    ("ftp", Kind::Host),
    ("getent", Kind::Hosts),
    ("git", Kind::Copy),
    ("host", Kind::Hosts),
    ("http", Kind::Urls),
    ("https", Kind::Urls),
    ("invoke-restmethod", Kind::Urls),
    ("invoke-webrequest", Kind::Urls),
    ("irm", Kind::Urls),
    ("iwr", Kind::Urls),
    ("kdig", Kind::Hosts),
    ("ldapsearch", Kind::Options),
    ("lftp", Kind::Host),
    ("links", Kind::Urls),
    ("lynx", Kind::Urls),
    ("mail", Kind::Mail),
    ("mailx", Kind::Mail),
    ("mongo", Kind::Options),
    ("mosh", Kind::Host),
    ("msmtp", Kind::Mail),
    ("mtr", Kind::Host),
    ("mutt", Kind::Mail),
    ("mysql", Kind::Options),
    ("nc", Kind::Host),
    ("ncat", Kind::Host),
    ("netcat", Kind::Host),
    ("nmap", Kind::Hosts),
    ("nslookup", Kind::Hosts),
    ("openssl", Kind::Options),
    ("ping", Kind::Host),
    ("ping6", Kind::Host),
    ("psql", Kind::Options),
    ("redis-cli", Kind::Options),
    ("resolvectl", Kind::Hosts),
    ("rsh", Kind::Host),
    ("rsync", Kind::Copy),
    ("scp", Kind::Copy),
    ("sendmail", Kind::Mail),
    ("sftp", Kind::Host),
    ("smbclient", Kind::Host),
    ("socat", Kind::Socat),
    ("ssh", Kind::Host),
    ("swaks", Kind::Options),
    ("telnet", Kind::Host),
    ("tftp", Kind::Host),
    ("tracepath", Kind::Host),
    ("traceroute", Kind::Host),
    ("wget", Kind::Urls),
    ("whois", Kind::Host),
    ("xh", Kind::Urls),
];
const CONNECTORS: [&str; 3] = ["nc", "ncat", "netcat"];
/// Whether a word is the name of a program that opens connections.
#[must_use]
pub fn is_tool(word: &str) -> bool {
    tool(word).is_some()
}

pub(super) fn find(text: &str, runs: bool, sink: &mut Sink<'_>) {
    let device = memchr::memmem::find(text.as_bytes(), b"/dev/tcp/").is_some()
        || memchr::memmem::find(text.as_bytes(), b"/dev/udp/").is_some();
    if device || has_tool(text) {
        read(text, 0, runs, MAX_DEPTH, sink);
    }
}

/// Whether a word of the text is one of the tools.
fn has_tool(text: &str) -> bool {
    let bytes = text.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        if !IS_WORD[usize::from(bytes[at])] {
            at += 1;
            continue;
        }
        let start = at;
        at += ascii::letters(&bytes[at..]);
        while at < bytes.len() && IS_WORD[usize::from(bytes[at])] {
            at += 1;
        }
        if tool(&text[start..at]).is_some() {
            return true;
        }
    }
    false
}

/// Longest name of a tool, in bytes.
const MAX_LENGTH: usize = 17;
/// Letters, digits and `-`.
static IS_WORD: [bool; 256] = {
    let mut table = [false; 256];
    let mut byte = 0;
    while byte < 128 {
        table[byte] = (byte as u8).is_ascii_alphanumeric() || byte as u8 == b'-';
        byte += 1;
    }
    table
};
static OUTLINES: Outlines = {
    let mut outlines = Outlines::new();
    let mut at = 0;
    while at < TOOLS.len() {
        outlines.add(TOOLS[at].0.as_bytes());
        at += 1;
    }
    outlines
};

fn tool(name: &str) -> Option<(&'static str, Kind)> {
    // Capitals begin sentences; only `Curl` and `Invoke-WebRequest` are written with one.
    let is_sentence = |first: u8| first.is_ascii_uppercase() && !matches!(first, b'C' | b'I');
    if !OUTLINES.may_have(name.as_bytes())
        || name.len() > MAX_LENGTH
        || name.bytes().next().is_some_and(is_sentence)
    {
        return None;
    }
    let mut lower = [0; MAX_LENGTH];
    let lower = &mut lower[..name.len()];
    lower.copy_from_slice(name.as_bytes());
    lower.make_ascii_lowercase();
    let index = TOOLS.binary_search_by(|(known, _)| known.as_bytes().cmp(lower)).ok()?;
    Some(TOOLS[index])
}

fn read(text: &str, offset: usize, runs: bool, depth: usize, sink: &mut Sink<'_>) {
    for command in commands(text) {
        let first = position_of_program(&command);
        for (index, word) in command.iter().enumerate() {
            device(word, offset, sink);
            if word.spaced && depth > 0 && has_tool(&word.text) {
                // A quoted command. Places inside of it are those of the whole word.
                let at = offset + word.at;
                let runs = runs && !is_message(&command, first, index);
                read(&word.text, 0, runs, depth - 1, &mut |mut found| {
                    found.at = at..at;
                    sink(found);
                });
            }
        }
        let mut index = 0;
        while index < command.len() {
            let name = command[index].text.rsplit('/').next().unwrap_or("");
            let name = name.strip_suffix(".exe").unwrap_or(name);
            let Some((name, kind)) = tool(name) else {
                index += 1;
                continue;
            };
            let rest = &command[index + 1..];
            // In prose, `host` and `links` are words: what follows has to be a host beyond doubt.
            let certain = index == first;
            let length = if certain {
                rest.len()
            } else {
                rest.iter().position(|word| tool(&word.text).is_some()).unwrap_or(rest.len())
            };
            arguments(name, kind, &rest[..length], certain && runs, certain, offset, sink);
            index += length + 1;
        }
    }
}

/// Whether a word is the description of a change: `git commit -m`, `gh pr create --title`.
fn is_message(command: &[Word], first: usize, index: usize) -> bool {
    const SAY: [&str; 6] = ["git", "gh", "glab", "hg", "svn", "jj"];
    const MESSAGES: [&str; 8] =
        ["-m", "-am", "--message", "--title", "-t", "--body", "--notes", "--description"];
    let text = |index: usize| command.get(index).map_or("", |word| word.text.as_str());
    SAY.contains(&text(first)) && index > first && MESSAGES.contains(&text(index - 1))
}

/// Behind `sudo`, `env`, `timeout 5` and their options.
fn position_of_program(command: &[Word]) -> usize {
    const PREFIXES: [&str; 15] = [
        "sudo", "env", "nohup", "time", "timeout", "command", "exec", "xargs", "nice", "then", "do", "else",
        "if", "torsocks", "$",
    ];
    let skipped = |word: &&Word| {
        let text = word.text.as_str();
        PREFIXES.contains(&text) || text.starts_with('-') || text.contains('=') || text.parse::<f64>().is_ok()
    };
    command.iter().take_while(skipped).count()
}

/// `strict`: any first word is a host, also one without a dot. `certain`: the tool really is executed.
fn arguments(
    name: &str,
    kind: Kind,
    words: &[Word],
    strict: bool,
    certain: bool,
    offset: usize,
    sink: &mut Sink<'_>,
) {
    let listens = CONNECTORS.contains(&name)
        && words.iter().any(|word| {
            let option = word.text.as_str();
            option == "--listen"
                || option.starts_with('-') && !option.starts_with("--") && option.contains('l')
        });
    let mut words = words.iter();
    let mut plain = 0_usize;
    while let Some(word) = words.next() {
        let text = word.text.as_str();
        let at = offset + word.at;
        if text.starts_with('-') && text.len() > 1 {
            match option(name, text) {
                HostPosition::Nothing => {}
                HostPosition::Skip => drop(words.next()),
                HostPosition::Next => {
                    if let Some(value) = words.next() {
                        host(&value.text, offset + value.at, sink);
                    }
                }
                HostPosition::Third => {
                    if let Some(value) = words.next() {
                        third(&value.text, offset + value.at, sink);
                    }
                }
                HostPosition::Here(value) => host(value, at, sink),
            }
            continue;
        }
        plain += 1;
        if kind == Kind::Options || word.spaced || text.contains("://") {
            continue;
        }
        // A listening program gets a port here.
        if listens && text.len() <= 5 && text.bytes().all(|byte| byte.is_ascii_digit()) {
            continue;
        }
        let text = text.trim_matches(|c: char| "()[]{},\"'`".contains(c) && c != '[' && c != ']');
        match kind {
            Kind::Socat => socat(text, at, sink),
            Kind::Copy => copy(text, at, sink),
            // In prose, `mail` is a word.
            Kind::Mail if strict && text.contains('@') => {
                host(text.rsplit('@').next().unwrap_or(""), at, sink)
            }
            Kind::Mail => {}
            Kind::Host if plain > 1 && certain => {}
            _ => {
                let bare = text.strip_prefix('@').unwrap_or(text).trim_end_matches('.');
                let name = bare.split('/').next().unwrap_or("").rsplit('@').next().unwrap_or("");
                let name = name.split(':').next().unwrap_or("");
                let last = name.rsplit('.').next().unwrap_or("");
                let dotted = name.contains('.') && !last.is_empty();
                let fits = if certain {
                    let file = is_file_name(name) && !(kind != Kind::Urls && plain == 1);
                    dotted && !file && !bare.starts_with(['.', '/'])
                        || bare.starts_with('[')
                        || strict && plain == 1
                } else {
                    dotted
                        && (is_certain(last) && !is_file_name(name)
                            || name.parse::<std::net::Ipv4Addr>().is_ok())
                };
                if fits && !text.starts_with('+') {
                    host(bare, at, sink);
                }
            }
        }
    }
}

/// The host of a word: without path, with what only the shell knows as one label in front.
fn host(text: &str, at: usize, sink: &mut Sink<'_>) {
    let text = text.rsplit_once("://").map_or(text, |(_, rest)| rest);
    let authority = text.split(['/', '\\', '?', '#']).next().unwrap_or("");
    let known = authority.trim_start_matches(UNKNOWN);
    let filled = if known.len() < authority.len() && known.starts_with('.') {
        format!("x{known}")
    } else {
        authority.to_owned()
    };
    if filled.contains(UNKNOWN) {
        let shown = filled.replace(UNKNOWN, "$");
        let target = unreadable(&shown);
        sink(Destination { target, port: None, scheme: None, at: at..at, form: Form::Command });
        return;
    }
    give(&filled, at, Form::Command, &mut |mut found| {
        found.at = at..at;
        sink(found);
    });
}

fn third(text: &str, at: usize, sink: &mut Sink<'_>) {
    if let Some(value) = text.splitn(3, ':').nth(2).filter(|value| !value.is_empty()) {
        host(value, at, sink);
    }
}

/// `host:path`, `user@host:path`, `host::module`.
fn copy(text: &str, at: usize, sink: &mut Sink<'_>) {
    let before = text.split('/').next().unwrap_or("");
    if let Some((place, _)) = before.split_once(':')
        && place.len() > 1
        && (place.contains('.') || place.contains('@') || place.contains(UNKNOWN))
    {
        host(place, at, sink);
    }
}

/// `TCP:host:port,option`
fn socat(text: &str, at: usize, sink: &mut Sink<'_>) {
    let mut parts = text.split(',').next().unwrap_or("").split(':');
    let kind = parts.next().unwrap_or("").to_ascii_uppercase();
    let connects = ["TCP", "UDP", "OPENSSL", "SSL", "SCTP", "PROXY", "SOCKS"]
        .iter()
        .any(|known| kind.starts_with(known));
    if connects && !kind.contains("LISTEN") {
        for part in parts.filter(|part| part.contains(['.', '[', UNKNOWN]) || part.parse::<u16>().is_err()) {
            host(part, at, sink);
        }
    }
}

/// `/dev/tcp/host/port`, which bash opens by itself.
fn device(word: &Word, offset: usize, sink: &mut Sink<'_>) {
    for prefix in ["/dev/tcp/", "/dev/udp/"] {
        if let Some((_, rest)) = word.text.split_once(prefix) {
            let name = rest.split('/').next().unwrap_or("");
            if !name.is_empty() {
                host(name, offset + word.at, sink);
            }
        }
    }
}
