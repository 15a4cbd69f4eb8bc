//! Answers `agentsh why` inside: about the one thing that was asked, from the policy in force.

use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, StatVfsMountFlags};
use tokio::io::AsyncWriteExt;
use tokio::net::UnixStream;

use agentsh_base::remedy;
use agentsh_base::types::{RuleRef, ServerId};
use agentsh_policy::{Answer, Question, domain};
use agentsh_sandbox::cgroup::TaskCount;
use agentsh_sandbox::limits::{MAX_QUEUE_BYTES, MAX_QUEUED_SIGNALS};
use agentsh_sandbox::spec::{SandboxSpec, Visibility};
use agentsh_store::{Event, escape, redact};

use super::refused_calls::{self, Calls};
use super::{Refusals, Session};
use agentsh_host::{Facts, Record, named_files};

/// For the answer to be read.
const WRITE_TIMEOUT: Duration = Duration::from_secs(5);

/// Limit of recorded questions per session.
const MAX_DIFFERENT: usize = 200;

/// Answers one question and closes the connection.
pub async fn answer(session: &Session, word: &str, mut stream: UnixStream) {
    let pid = stream.peer_cred().ok().and_then(|who| who.pid()).unwrap_or_default();
    let text = text(session, pid, word);
    // The asker may be gone.
    let _ = tokio::time::timeout(WRITE_TIMEOUT, stream.write_all(text.as_bytes())).await;
}

fn text(session: &Session, pid: i32, word: &str) -> String {
    if word.is_empty() || word.chars().any(char::is_control) {
        return "-that is neither a path, a host nor a command\n".to_owned();
    }
    if LIMITS.contains(&word) {
        let agent = &session.live.agent;
        let private = agent.spec.get().map_or(0, |spec| spec.paths.private_bytes);
        return limits(&session.facts, agent.tasks.get().map_or(0, TaskCount::highest_count), private);
    }
    let Session { facts, record, live } = session;
    if let Some((_, text)) = NOTES.iter().find(|(words, _)| words.contains(&word)) {
        let writes = live.refusals.writes.borrow();
        let writes = writes.all().take(MAX_LISTED).map(|(program, refusal)| {
            format!("'{}' could not write {}\n", escape::line(program), escape::line(&refusal.path))
        });
        return format!("+{text}\n{}", writes.collect::<String>());
    }
    let mut text = String::new();
    let mut allow = true;
    let mut is_for_outside = false;
    for (what, question) in questions(word) {
        let asked = || as_built(facts, pid, &question, ask(facts, live.agent.spec.get(), None, &question));
        let answer = impossible_answer(&live.refusals.calls, &question);
        let answer = answer.or_else(|| not_written(session, &question)).unwrap_or_else(asked);
        let answer = unless_an_agent_listens(session, &question, answer);
        is_for_outside |= answer.rule == refused_calls::rule();
        allow &= answer.allow;
        record_first(record, &live.refusals, what, &question, &answer);
        let mut said = answer.to_string();
        if let Some(change) = answer.change.as_deref().filter(|_| !answer.allow)
            && let Some(command) = remedy::command(change)
            && let Some(typed) = facts.allowing(change).and_then(|allow| allow.line())
        {
            said = said.replace(&command, &typed);
        }
        // Writing to a string cannot fail.
        let _ = write!(text, "{what}: {said}");
    }
    if allow {
        text.push_str(
            "if it still fails, the file is missing, its permissions forbid it, or a limit is reached (`agentsh why limits`)\n",
        );
    } else if is_for_outside {
        text.push_str("no policy allows it: tell the user, who can do it outside\n");
    } else {
        text.push_str("only the user can allow it, outside, for the next `agentsh run`\n");
    }
    format!("{}{text}", if allow { '+' } else { '-' })
}

/// Limit of listed refused writes.
const MAX_LISTED: usize = 8;

/// Questions about limits: programs that show or set them, and words of their errors.
const LIMITS: [&str; 7] = ["limits", "ulimit", "prlimit", "EMFILE", "EAGAIN", "ENOMEM", "ENOSPC"];

/// Facts about every sandbox, by programs and words of their errors.
const NOTES: &[(&[&str], &str)] = &[
    (
        &["chown", "chgrp", "setuid", "setgid", "EPERM", "EINVAL"],
        "one user and one group exist inside: a change to another is refused (EPERM), as outside without root; `fakeroot` works",
    ),
    (
        &["ENETUNREACH", "EHOSTUNREACH", "ENOTFOUND", "EAI_AGAIN"],
        "only hosts that a rule names can be reached: ask for the host (`agentsh why HOST` or `agentsh why ADDRESS:PORT`)",
    ),
    (
        &["EROFS", "EBUSY", "EACCES", "ENXIO", "ENOENT"],
        "a file that is missing, read-only or busy has its own rule: ask for its path (`agentsh why PATH`)",
    ),
];

/// The agent's limits, with their rules.
fn limits(facts: &Facts, tasks: u64, private: u64) -> String {
    let limits = facts.policy.agent.limits.clone().or(agentsh_policy::limits::limits_for_agent());
    let mut text = "+".to_owned();
    for (what, key, limit) in [
        ("open files", "open_files", &limits.open_files),
        ("processes and threads", "pids", &limits.pids),
        ("MiB of memory for all processes", "memory", &limits.memory),
        ("percent of one CPU", "cpu_percent", &limits.cpu),
    ] {
        if let Some(limit) = limit {
            let value = if key == "memory" { limit.value >> 20 } else { limit.value };
            // Writing to a string cannot fail.
            let had = if key == "pids" && tasks > 0 { format!(" ({tasks} so far)") } else { String::new() };
            let _ = writeln!(text, "at most {value} {what}{had}, by {}", limit.rule);
        }
    }
    let _ = writeln!(
        text,
        "at most {} MiB in each of /tmp, /dev/shm and the home, which are in memory",
        private >> 20
    );
    let _ = writeln!(
        text,
        "at most {MAX_QUEUED_SIGNALS} pending signals, and {MAX_QUEUE_BYTES} bytes in message queues"
    );
    text.push_str(
        "no core dumps: a program outside the sandbox would get them\nall other limits that `ulimit -a` shows (size of a file, \
         stack, locked memory) are the same as outside\n",
    );
    let file = facts.context.config.join("agentsh/policy.yaml");
    let _ = writeln!(
        text,
        "only the user can raise one, outside: `agent: {{limits: {{open_files: 8192}}}}` in {}",
        file.display()
    );
    text
}

/// The answer for actions that no policy can allow.
fn impossible_answer(refused: &Calls, question: &Question) -> Option<Answer> {
    let Question::Exec(word) = question else { return None };
    let name = Path::new(word).file_name()?.to_str()?;
    let purpose = refused.of(name).or_else(|| refused_calls::works_outside(name))?;
    let text = format!("'{name}' wants {}: {}; {}", purpose.what, purpose.why, purpose.instead);
    Some(Answer { allow: false, rule: refused_calls::rule(), text, change: None })
}

/// No port is offered behind which an agent of the user listens, outside of every sandbox.
fn unless_an_agent_listens(session: &Session, question: &Question, answer: Answer) -> Answer {
    let Question::Connect(_, port) = question else { return answer };
    if !answer.change.as_ref().is_some_and(|change| change.contains("loopback: [")) {
        return answer;
    }
    match session.live.network.listeners.agent(*port) {
        Some(agent) => Answer {
            text: format!("{}; {agent} listens there, outside of every sandbox: do not open it", answer.text),
            change: None,
            ..answer
        },
        None => answer,
    }
}

/// The answer about a file that a program was refused to write.
fn not_written(session: &Session, question: &Question) -> Option<Answer> {
    let Question::Exec(word) = question else { return None };
    let name = Path::new(word).file_name()?.to_str()?;
    let writes = session.live.refusals.writes.borrow();
    let path = writes.of(name)?;
    let answer = session.facts.policy.ask(None, &Question::Write(path.to_owned()), &session.facts.paths());
    let text = format!("'{name}' could not write {path}: {}", answer.text);
    (!answer.allow).then_some(Answer { text, ..answer })
}

/// Once per question, up to the limit.
fn record_first(record: &Record, refusals: &Refusals, what: &str, question: &Question, answer: &Answer) {
    let about = match question {
        Question::Read(about) | Question::Write(about) | Question::Exec(about) => about.clone(),
        Question::Connect(host, port) => format!("{host}:{port}"),
        _ => return,
    };
    let mut told = refusals.asked.borrow_mut();
    if answer.allow || told.len() >= MAX_DIFFERENT || !told.insert((what.to_owned(), about.clone())) {
        return;
    }
    record.journal.record(denied(what, &about, answer));
}

/// The question is the agent's text: a token in it is not recorded.
fn denied(what: &str, about: &str, answer: &Answer) -> Event {
    let change = answer.change.as_deref().map(redact::text);
    Event::WhyDenied { what: what.to_owned(), about: redact::text(about), rule: answer.rule.clone(), change }
}

/// The meanings of a word.
fn questions(word: &str) -> Vec<(&'static str, Question)> {
    if let Some((scheme, rest)) = word.split_once("://") {
        let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
        let authority = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
        let default = if scheme == "http" { 80 } else { 443 };
        let (host, port) = domain::split_port(authority).unwrap_or((authority, None));
        return vec![("connect", Question::Connect(host.to_owned(), port.unwrap_or(default)))];
    }
    if word.contains('/') || word.starts_with(['~', '.']) {
        return vec![("read", Question::Read(word.to_owned())), ("write", Question::Write(word.to_owned()))];
    }
    let is_host = |host: &str| domain::normalise(host).is_ok();
    match domain::split_port(word) {
        Ok((host, Some(port))) if is_host(host) => {
            vec![("connect", Question::Connect(host.to_owned(), port))]
        }
        Ok((host, None)) if is_host(host) && (host.contains(['.', ':']) || host == "localhost") => {
            vec![("connect", Question::Connect(host.to_owned(), 443))]
        }
        _ => vec![("execute", Question::Exec(word.to_owned()))],
    }
}

/// The policy's answer for the agent (`from` is None) or a server; `agent` is the agent's sandbox, once started.
pub fn ask(
    facts: &Facts,
    agent: Option<&SandboxSpec>,
    from: Option<&ServerId>,
    question: &Question,
) -> Answer {
    let answer = of_rules(facts, agent, from, question);
    named_files::deny_named_file(&facts.context, &facts.policy, from, question, answer)
}

fn of_rules(
    facts: &Facts,
    agent: Option<&SandboxSpec>,
    from: Option<&ServerId>,
    question: &Question,
) -> Answer {
    let paths = facts.paths();
    let Some(spec) = agent.filter(|_| from.is_none()) else {
        return facts.policy.ask(from, question, &paths);
    };
    if let Question::Connect(host, port) = question {
        return agentsh_policy::ask_connect(&spec.network, None, host, *port);
    }
    let answer = facts.policy.ask(None, question, &paths);
    let (text, wants_write) = match question {
        Question::Read(text) => (text, false),
        Question::Write(text) => (text, true),
        _ => return answer,
    };
    // Explicit refusals stay: hook files, masks, and denying rules.
    let nothing_names_it = answer.rule.file == "default";
    let explained = spec.explain(&agentsh_policy::place::resolve(text, &paths));
    let (place, rule) = (explained.place.display(), explained.rule);
    match explained.visibility {
        Visibility::Hidden if answer.allow || nothing_names_it => {
            let text = format!("`{place}` is never visible inside");
            Answer { allow: false, rule, text, change: None }
        }
        shown @ (Visibility::ReadOnly | Visibility::ReadWrite) if !answer.allow && nothing_names_it => {
            let allow = !wants_write || shown == Visibility::ReadWrite;
            let access = if shown == Visibility::ReadWrite { "written" } else { "read" };
            let text = format!("`{place}` can be {access}: {}", rule.id);
            Answer { allow, rule, text, change: if allow { None } else { answer.change } }
        }
        _ => answer,
    }
}

/// The asker's real view: what exists without a grant is the sandbox's own.
fn as_built(facts: &Facts, pid: i32, question: &Question, answer: Answer) -> Answer {
    let (text, wants_write) = match question {
        Question::Read(text) => (text, false),
        Question::Write(text) => (text, true),
        _ => return answer,
    };
    let path = agentsh_policy::place::resolve(text, &facts.paths());
    let own = |allow: bool, text: String, change: Option<String>| {
        let rule = RuleRef { id: "sandbox".to_owned(), file: "built-in".to_owned(), line: 0 };
        Answer { allow, rule, text, change }
    };
    if STREAMS.iter().any(|stream| path.starts_with(stream)) {
        let from_root = facts.context.identity.from_root;
        let note = if from_root {
            "; a file or terminal of root works only through a descriptor that is already open"
        } else {
            ""
        };
        return own(
            true,
            format!("`{}` is a stream that the program was started with{note}", path.display()),
            None,
        );
    }
    let Some((found, read_only, _)) = view_inside(pid, &path) else { return answer };
    let (is_there, shown) = (found == path, found.display());
    match (answer.allow, wants_write) {
        (false, _) if answer.rule.file != "default" => answer,
        (false, false) if is_there => own(true, format!("`{shown}` belongs to the sandbox"), None),
        (false, true) if read_only => {
            own(false, format!("`{shown}` belongs to the sandbox, and is read-only"), answer.change)
        }
        (false, true) if is_there => own(true, format!("`{shown}` belongs to the sandbox"), None),
        _ => answer,
    }
}

/// Names of open streams.
const STREAMS: [&str; 5] = ["/dev/stdin", "/dev/stdout", "/dev/stderr", "/dev/fd", "/proc/self/fd"];

/// A process's view of a path or its nearest parent, whether that is mounted read-only, and its device.
pub(super) fn view_inside(pid: impl std::fmt::Display, path: &Path) -> Option<(&Path, bool, u64)> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let root = rustix::fs::openat(CWD, format!("/proc/{pid}/root"), flags, Mode::empty()).ok()?;
    let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
    let open = |path: &Path| rustix::fs::openat2(&root, path, flags, Mode::empty(), resolve).ok();
    let mut nearest = path.ancestors().filter(|above| *above != Path::new("/"));
    let (found, opened) = nearest.find_map(|above| Some((above, open(above)?)))?;
    let flags = rustix::fs::fstatvfs(&opened).ok()?.f_flag;
    let device = rustix::fs::fstat(&opened).ok()?.st_dev;
    Some((found, flags.contains(StatVfsMountFlags::RDONLY), device))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_in_a_question_is_not_on_record() {
        let token = format!("ghp_{}", "16C7e42F292c6912E7710c838347Ae178B4a");
        let about = format!("/opt/x?token={token}&{}", "y".repeat(4000));
        let rule = RuleRef { id: "filesystem".to_owned(), file: "default".to_owned(), line: 0 };
        let change = Some(format!("read: [{about}]"));
        let answer = Answer { allow: false, rule, text: String::new(), change };
        let record = format!("{:?}", denied("read", &about, &answer));
        assert!(!record.contains(&token[..20]) && record.len() < 1000, "{record}");
        assert!(record.contains("/opt/x?token=") && record.contains("[redacted]"), "{record}");
        let plain = format!("{:?}", denied("read", "/srv/data/notes.txt", &answer));
        assert!(plain.contains("/srv/data/notes.txt"), "{plain}");
    }
}
