//! Logins to servers behind a URL: where their tokens are kept, what of them goes on the wire, and how one begins and ends. No
//! sandbox sees the directory of the state, and so none sees a token.

mod kept;
mod keyring;
mod store;
pub mod verb;

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;

use crate::egress::Client;
use crate::egress::resolve::Resolver;
use crate::login::Clients;
use crate::store::{Event, escape, words::LoginWord};
use crate::types::ServerId;

use super::approvals::notice;
use super::{Session, network, remote};

pub use kept::Kept;
pub use store::Store;

/// What the user was told in this session: each thing once.
#[derive(Debug, Default)]
pub struct Logins {
    told: RefCell<BTreeSet<String>>,
}

impl Logins {
    /// Asks the user, once for each question, whatever draws on the terminal. False: that was asked before.
    fn ask(session: &Session, what: &str, how: &str) -> bool {
        let is_new = session.logins.told.borrow_mut().insert(format!("{what} {how}"));
        if is_new {
            notice(session, &escape::line(what), how);
        }
        is_new
    }
}

fn record(
    session: &Session,
    id: &ServerId,
    url: &str,
    what: LoginWord,
    (issuer, detail): (Option<&str>, String),
) {
    session.journal.record(Event::ServerLogin {
        server_id: id.clone(),
        url: url.to_owned(),
        issuer: issuer.map(str::to_owned),
        what,
        detail,
    });
}

/// Clients for everything that a login to this server asks. The authorization server may lie where the server itself may: on
/// this machine only if the server does, in a private network only if the rules of the server name it.
///
/// # Errors
/// When this machine cannot resolve names, or the policy names a proxy that is none.
pub fn clients(
    session: &Rc<Session>,
    id: &ServerId,
    server: &str,
    users_word: bool,
) -> Result<Clients, String> {
    let lookup = Resolver::system_lookup().map_err(|error| error.to_string())?;
    let proxy = network::proxy(session, &session.policy.agent.network)?;
    let here = users_word && url::Url::parse(server).is_ok_and(|url| remote::is_here(&url));
    let (session, id) = (Rc::clone(session), id.clone());
    Ok(Rc::new(move |url: &str| {
        let rules = remote::rules(&session, &id, url, here);
        Ok(Client::new(lookup.clone(), rules).with_proxy(proxy.clone()))
    }))
}

/// One word of a shell's command line.
fn word(text: &str) -> String {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "-_.:/@%+=,".contains(letter);
    if !text.is_empty() && text.chars().all(is_plain) {
        text.to_owned()
    } else {
        format!("'{}'", text.replace('\'', "'\\''"))
    }
}
