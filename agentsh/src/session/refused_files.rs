//! Files that Landlock refused, told: by the audit records of the kernel, where root started agentsh and audit is on. Elsewhere
//! `agentsh why` answers, and the names of guarded files are watched.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::rc::Rc;

use tokio::io::Interest;

use super::Session;
use super::draining::{Next, serve};
use agentsh_base::types::{RuleRef, ServerId};
use agentsh_policy::Question;
use agentsh_policy::builtin_paths::is_never_offered;
use agentsh_sandbox::audit::{self, Record};
use agentsh_sandbox::spawn;
use agentsh_store::{Event, escape, redact};

/// Different ones of a session that are remembered.
const MAX_DIFFERENT: usize = 200;
/// Told as they fall; the record has the others.
const MAX_SHOWN: usize = 5;
/// Refusals of a domain of which nobody has said yet whose it is. The machine has other users of Landlock.
const MAX_PENDING: usize = 100;
/// Domains that are known to be somebody else's, or ours.
const MAX_DOMAINS: usize = 1000;

/// Whose a domain is.
type Owner = Option<ServerId>;

/// What is known of the sandboxes of a session and of their domains.
#[derive(Debug, Default)]
pub struct Files {
    sandboxes: RefCell<BTreeMap<u32, Owner>>,
    /// None: not one of ours.
    domains: RefCell<BTreeMap<String, Option<Owner>>>,
    pending: RefCell<Vec<(String, Vec<String>, String)>>,
    told: RefCell<BTreeSet<(Owner, String, Vec<String>)>>,
    listens: std::cell::Cell<bool>,
}

/// A refusal of one of our sandboxes.
#[derive(Debug, PartialEq, Eq)]
pub struct Refusal {
    pub owner: Owner,
    /// As Landlock calls them.
    pub rights: Vec<String>,
    pub path: String,
}

impl Files {
    /// Those refusals that are ours, as far as it is known by now.
    fn hear(&self, record: Record) -> Vec<Refusal> {
        let mut pending = self.pending.borrow_mut();
        let mut domains = self.domains.borrow_mut();
        match record {
            Record::Refused { domain, rights, path } => match domains.get(&domain) {
                Some(Some(owner)) => vec![Refusal { owner: owner.clone(), rights, path }],
                Some(None) => Vec::new(),
                None => {
                    if pending.len() >= MAX_PENDING {
                        pending.remove(0);
                    }
                    pending.push((domain, rights, path));
                    Vec::new()
                }
            },
            Record::Domain { domain, pid } => {
                let owner = self.sandboxes.borrow().get(&pid).cloned();
                if domains.len() < MAX_DOMAINS {
                    domains.insert(domain.clone(), owner.clone());
                }
                let (of_it, others) =
                    std::mem::take(&mut *pending).into_iter().partition(|(other, ..)| *other == domain);
                *pending = others;
                let Some(owner) = owner else { return Vec::new() };
                let of_it: Vec<_> = of_it;
                of_it
                    .into_iter()
                    .map(|(_, rights, path)| Refusal { owner: owner.clone(), rights, path })
                    .collect()
            }
        }
    }

    /// Whether there may have been more than are remembered.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.told.borrow().len() >= MAX_DIFFERENT
    }

    /// The number of a refusal that was not told yet.
    fn number(&self, refusal: &Refusal) -> Option<usize> {
        let mut told = self.told.borrow_mut();
        let key = (refusal.owner.clone(), refusal.path.clone(), refusal.rights.clone());
        let is_new = told.len() < MAX_DIFFERENT && told.insert(key);
        is_new.then_some(told.len())
    }
}

/// A sandbox was started: what Landlock refuses to it is told from now on, where that can be heard.
pub fn add(session: &Rc<Session>, owner: Owner, pid: u32) {
    let files = &session.live.refused_files;
    files.sandboxes.borrow_mut().insert(pid, owner);
    if files.listens.replace(true) {
        return;
    }
    // Whoever may not hear the machine's records asks `why`.
    let Ok(socket) = audit::listen().and_then(|socket| spawn::watch(socket, Interest::READABLE)) else {
        return;
    };
    let session = Rc::downgrade(session);
    tokio::task::spawn_local(async move {
        let mut message = vec![0; audit::MAX_LENGTH];
        serve(&socket, async || {
            let Some(session) = session.upgrade() else { return Next::Over };
            match rustix::io::read(socket.get_ref(), &mut message) {
                Ok(length) => {
                    let record = message.get(..length).and_then(audit::read);
                    let found = record.map(|record| session.live.refused_files.hear(record));
                    for refusal in found.unwrap_or_default() {
                        tell(&session, &refusal);
                    }
                    Next::More
                }
                // What came too fast is lost, and what comes next is heard.
                Err(rustix::io::Errno::NOBUFS | rustix::io::Errno::INTR) => Next::More,
                Err(_) => Next::Empty,
            }
        })
        .await;
    });
}

/// Tells of one, the first time.
pub fn tell(session: &Session, refusal: &Refusal) {
    let Some(number) = session.live.refused_files.number(refusal) else { return };
    let Refusal { owner, rights, path } = refusal;
    let question = if rights.iter().all(|right| right.starts_with("fs.read_")) {
        Question::Read(path.clone())
    } else if rights.iter().any(|right| right == "fs.execute") {
        Question::Exec(path.clone())
    } else {
        Question::Write(path.clone())
    };
    let answer = session.facts.policy.ask(owner.as_ref(), &question, &session.facts.paths());
    let paths = session.facts.paths();
    let is_offered =
        !answer.allow && !is_never_offered(Path::new(path), &paths.home, &session.facts.context.state);
    let change = answer.change.filter(|_| is_offered);
    if let Some(change) = &change {
        // A directory that was looked at, or a file to be made, says nothing of what is needed.
        let is_precise = !rights.iter().all(|right| right == "fs.read_dir" || right.starts_with("fs.make_"));
        if is_precise && !matches!(question, Question::Exec(_)) {
            session.live.wanted.add(&session.facts, change);
        }
    }
    let what = rights.iter().map(|right| right.trim_start_matches("fs.")).collect::<Vec<_>>().join(", ");
    if number <= MAX_SHOWN {
        let who =
            owner.as_ref().map_or("the agent".to_owned(), |id| format!("server '{}'", escape::line(&id.0)));
        let (path, why) = (escape::line(path), escape::line(&answer.text));
        let to_allow = change.as_ref().map_or(String::new(), |change| {
            format!("; to allow it: {}", escape::line(&session.facts.remedy(change)))
        });
        session.record.note(&format!(
            "refused: {who} -> {path} ({}: {why}, by {}){to_allow}",
            escape::line(&what),
            answer.rule
        ));
    }
    session.record.journal.record(refused(refusal, what, answer.rule, change.as_deref()));
}

/// A name may be a token: of a path and of what would allow it, the rest is on record.
fn refused(refusal: &Refusal, access: String, rule: RuleRef, change: Option<&str>) -> Event {
    Event::FileRefused {
        server_id: refusal.owner.clone(),
        path: redact::whole(&refusal.path),
        access,
        rule,
        change: change.map(redact::whole),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(domain: &str, path: &str) -> Record {
        let rights = vec!["fs.read_file".to_owned()];
        Record::Refused { domain: domain.to_owned(), rights, path: path.to_owned() }
    }

    #[test]
    fn a_token_in_a_name_is_not_on_record() {
        let token = format!("ghp_{}", "16C7e42F292c6912E7710c838347Ae178B4a");
        let rule = RuleRef { id: "filesystem".to_owned(), file: "default".to_owned(), line: 0 };
        let about = |path: &str| {
            let refusal = Refusal { owner: None, rights: Vec::new(), path: path.to_owned() };
            let change = format!("read: [{path}]");
            format!("{:?}", super::refused(&refusal, "read_file".to_owned(), rule.clone(), Some(&change)))
        };
        let record = about(&format!("/srv/export/{token}/x"));
        assert!(!record.contains(&token[..20]) && record.contains("[redacted]"), "{record}");
        for path in ["/home/u/.cache/pip/wheels/0f/a1/notes-1.2.whl", "/srv/data/2024-11-03/Über uns.txt"] {
            assert!(about(path).matches(path).count() == 2, "{}", about(path));
        }
    }

    fn domain(domain: &str, pid: u32) -> Record {
        Record::Domain { domain: domain.to_owned(), pid }
    }

    #[test]
    fn only_ours_are_told_and_in_either_order() {
        let files = Files::default();
        files.sandboxes.borrow_mut().insert(7, None);
        let paths = |found: Vec<Refusal>| found.into_iter().map(|one| one.path).collect::<Vec<_>>();
        assert!(files.hear(refused("a", "/1")).is_empty());
        assert!(files.hear(refused("b", "/other")).is_empty());
        assert_eq!(paths(files.hear(domain("a", 7))), ["/1"]);
        assert_eq!(paths(files.hear(refused("a", "/2"))), ["/2"]);
        assert!(files.hear(domain("b", 8)).is_empty());
        assert!(files.hear(refused("b", "/other")).is_empty());
        for number in 0..5000 {
            files.hear(refused(&format!("x{number}"), "/x"));
        }
        assert_eq!(files.pending.borrow().len(), MAX_PENDING);
    }

    #[test]
    fn each_is_told_once() {
        let files = Files::default();
        let one = |path: String| Refusal { owner: None, rights: vec!["fs.read_file".to_owned()], path };
        assert_eq!(files.number(&one("/a".to_owned())), Some(1));
        assert_eq!(files.number(&one("/a".to_owned())), None);
        for number in 0..1000 {
            files.number(&one(number.to_string()));
        }
        assert_eq!(files.told.borrow().len(), MAX_DIFFERENT);
    }
}
