//! Reports files that Landlock refused, from the kernel's audit log (needs root).

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::rc::Rc;

use tokio::io::Interest;

use super::Session;
use super::drain::{Next, serve};
use agentsh_base::types::{RuleRef, ServerId};
use agentsh_policy::Question;
use agentsh_policy::builtin_paths::is_never_offered;
use agentsh_sandbox::landlock_audit::{self, Record};
use agentsh_sandbox::spawn;
use agentsh_store::{Event, escape, redact};

/// Limit of remembered refusals per session.
const MAX_DIFFERENT: usize = 200;
/// Reported at once; the journal has all.
const MAX_SHOWN: usize = 5;
/// Limit of refusals of unknown domains, because other programs use Landlock too.
const MAX_PENDING: usize = 100;
/// Limit of known domains.
const MAX_DOMAINS: usize = 1000;

/// The server of a domain; None: the agent.
type Owner = Option<ServerId>;

/// The session's sandboxes and their domains.
#[derive(Debug, Default)]
pub struct Files {
    sandboxes: RefCell<BTreeMap<u32, Owner>>,
    /// None: the domain is not one of this session.
    domains: RefCell<BTreeMap<String, Option<Owner>>>,
    pending: RefCell<Vec<(String, Vec<String>, String)>>,
    told: RefCell<BTreeSet<(Owner, String, Vec<String>)>>,
    listens: std::cell::Cell<bool>,
}

/// A refusal in one of our sandboxes.
#[derive(Debug, PartialEq, Eq)]
pub struct Refusal {
    pub owner: Owner,
    /// Landlock's names.
    pub rights: Vec<String>,
    pub path: String,
}

impl Files {
    /// The refusals that are known to be ours.
    fn match_refusals(&self, record: Record) -> Vec<Refusal> {
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

    /// Whether refusals may have been dropped.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.told.borrow().len() >= MAX_DIFFERENT
    }

    /// The number of an unreported refusal.
    fn number(&self, refusal: &Refusal) -> Option<usize> {
        let mut told = self.told.borrow_mut();
        let key = (refusal.owner.clone(), refusal.path.clone(), refusal.rights.clone());
        let is_new = told.len() < MAX_DIFFERENT && told.insert(key);
        is_new.then_some(told.len())
    }
}

/// Writes that a read-only mount refused, by program.
#[derive(Debug, Default)]
pub struct Writes(Vec<(String, Refusal)>);

impl Writes {
    pub fn add(&mut self, program: &str, refusal: Refusal) {
        let is_known = |(name, known): &(String, Refusal)| name == program && *known == refusal;
        if self.0.len() < MAX_DIFFERENT && !self.0.iter().any(is_known) {
            self.0.push((program.to_owned(), refusal));
        }
    }

    /// The file that a program could not write. A program may have renamed itself: `npm install x`.
    pub fn of(&self, program: &str) -> Option<&str> {
        // The kernel truncates names.
        let short = program.get(..15).unwrap_or(program);
        let is_it = |name: &str| name == short || name.split(' ').next() == Some(short);
        self.0.iter().find(|(name, _)| is_it(name)).map(|(_, refusal)| refusal.path.as_str())
    }

    pub fn all(&self) -> impl Iterator<Item = &(String, Refusal)> {
        self.0.iter()
    }
}

/// Registers a sandbox, if audit records can be read.
pub fn add(session: &Rc<Session>, owner: Owner, pid: u32) {
    let files = &session.live.refusals.files;
    files.sandboxes.borrow_mut().insert(pid, owner);
    if files.listens.replace(true) {
        return;
    }
    // Without permission, `agentsh why` still answers.
    let Ok(socket) = landlock_audit::listen().and_then(|socket| spawn::watch(socket, Interest::READABLE))
    else {
        return;
    };
    let session = Rc::downgrade(session);
    agentsh_base::task::spawn_local(async move {
        let mut message = vec![0; landlock_audit::MAX_LENGTH];
        serve(&socket, async || {
            let Some(session) = session.upgrade() else { return Next::Over };
            match rustix::io::read(socket.get_ref(), &mut message) {
                Ok(length) => {
                    let record = message.get(..length).and_then(landlock_audit::read);
                    let found = record.map(|record| session.live.refusals.files.match_refusals(record));
                    for refusal in found.unwrap_or_default() {
                        report_refusal(&session, &refusal);
                    }
                    Next::More
                }
                // Lost records are skipped.
                Err(rustix::io::Errno::NOBUFS | rustix::io::Errno::INTR) => Next::More,
                Err(_) => Next::Empty,
            }
        })
        .await;
    });
}

/// Reports the first one of a kind.
pub fn report_refusal(session: &Session, refusal: &Refusal) {
    let Some(number) = session.live.refusals.files.number(refusal) else { return };
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
        // Listing a directory or creating a file does not show what is needed.
        let is_precise = !rights.iter().all(|right| right == "fs.read_dir" || right.starts_with("fs.make_"));
        if is_precise && !matches!(question, Question::Exec(_)) {
            session.live.refusals.suggested.add(&session.facts, change);
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
    session.record.journal.record(refusal_event(refusal, what, answer.rule, change.as_deref()));
}

/// A name may be a token, which is redacted in the path and suggestion.
fn refusal_event(refusal: &Refusal, access: String, rule: RuleRef, change: Option<&str>) -> Event {
    Event::FileRefused {
        server_id: refusal.owner.clone(),
        path: redact::redact_text(&refusal.path),
        access,
        rule,
        change: change.map(redact::redact_text),
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
            format!(
                "{:?}",
                super::refusal_event(&refusal, "read_file".to_owned(), rule.clone(), Some(&change))
            )
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
    fn refused_files_of_own_sandboxes_are_reported_in_any_order() {
        let files = Files::default();
        files.sandboxes.borrow_mut().insert(7, None);
        let paths = |found: Vec<Refusal>| found.into_iter().map(|one| one.path).collect::<Vec<_>>();
        assert!(files.match_refusals(refused("a", "/1")).is_empty());
        assert!(files.match_refusals(refused("b", "/other")).is_empty());
        assert_eq!(paths(files.match_refusals(domain("a", 7))), ["/1"]);
        assert_eq!(paths(files.match_refusals(refused("a", "/2"))), ["/2"]);
        assert!(files.match_refusals(domain("b", 8)).is_empty());
        assert!(files.match_refusals(refused("b", "/other")).is_empty());
        for number in 0..5000 {
            files.match_refusals(refused(&format!("x{number}"), "/x"));
        }
        assert_eq!(files.pending.borrow().len(), MAX_PENDING);
    }

    #[test]
    fn refused_file_is_reported_once() {
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
