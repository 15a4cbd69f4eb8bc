//! Serves the sockets that were born in one sandbox: its connections and its questions for names.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::net::{TcpListener, UdpSocket};
use std::rc::Rc;
use std::time::Duration;

use tokio::task::AbortHandle;

use super::dns::{Answer, Outcome, Question};
use super::egress_context::{EgressContext, Origin, Refusal};
use super::wakeful::BusyPoller;
use super::{dns_server, relay};
use crate::policy::domain::Host;
use crate::store::words::Action;
use crate::store::{Event, Recorder};

/// Different questions of one sandbox that are written down.
const MAX_QUESTIONS: usize = 1000;

/// Stops to accept when dropped; what is connected lives on until one side ends it.
pub struct Service<R> {
    egress: Rc<EgressContext<R>>,
    tasks: Vec<AbortHandle>,
}

/// Serves until the [`Service`] is dropped. Must be called inside a `LocalSet`.
#[must_use]
pub fn serve<R: Recorder + 'static>(
    egress: Rc<EgressContext<R>>,
    listeners: Vec<TcpListener>,
    resolver: (UdpSocket, TcpListener),
) -> Service<R> {
    let mut tasks = Vec::new();
    let wakeful = Rc::new(BusyPoller::new());
    for listener in listeners {
        let (egress, wakeful) = (Rc::clone(&egress), Rc::clone(&wakeful));
        // A listener that fails takes no connection: the program sees that nobody answers.
        tasks.push(tokio::task::spawn_local(relay::serve(listener, egress, wakeful)).abort_handle());
    }
    let (udp, tcp) = resolver;
    let questions = Rc::new(RefCell::new(BTreeSet::new()));
    let (own, asked) = (Rc::clone(&egress), Rc::clone(&questions));
    let over_udp = async move {
        let observe = async |answered: &Answer| observe(&own, &asked, answered).await;
        let _ = dns_server::serve_udp(udp, &own.allow, &own.pool, &observe).await;
    };
    let own = Rc::clone(&egress);
    let over_tcp = async move {
        let observe = async |answered: &Answer| observe(&own, &questions, answered).await;
        let _ = dns_server::serve_tcp(tcp, &own.allow, &own.pool, &observe).await;
    };
    tasks.push(tokio::task::spawn_local(over_udp).abort_handle());
    tasks.push(tokio::task::spawn_local(over_tcp).abort_handle());
    Service { egress, tasks }
}

impl<R: Recorder + 'static> Service<R> {
    /// Gives the connections of a sandbox that has ended time to be written down.
    pub async fn finish(self, limit: Duration) {
        let quiet = async {
            while self.egress.live.get() > 0 {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        // What still sends to the outside goes on as long as the session.
        let _ = tokio::time::timeout(limit, quiet).await;
        self.egress.count_rest();
    }
}

impl<R> Drop for Service<R> {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}

/// False when the question may not be answered: a refusal is on disk before it is heard.
async fn observe<R: Recorder + 'static>(
    egress: &EgressContext<R>,
    questions: &RefCell<BTreeSet<(String, String)>>,
    answered: &Answer,
) -> bool {
    egress.record.room().await;
    let (name, query_type) = match &answered.asked {
        Some(Question { name, rtype }) => (name.clone(), rtype.to_string()),
        None => (String::new(), String::new()),
    };
    match &answered.outcome {
        Outcome::Answered(..) | Outcome::Empty => {
            if let (Outcome::Answered(v4, v6), Origin::Kernel(policed)) = (&answered.outcome, &egress.origin)
            {
                // Before the answer. Where the kernel has no room for it, the connect is refused with an event.
                let _ = policed.open(&egress.allow, &name, (*v4, *v6));
            }
            if !is_new(questions, &name, &query_type) {
                return egress.record.broken().is_none();
            }
            let host = Host::Name(name.clone());
            let rule = match egress.allow.name(&name) {
                Some(ruled) => ruled.rule.clone(),
                None => egress.allow.decide(&host, 443).rule,
            };
            egress.record.record(Event::DnsQuery {
                server_id: egress.server.clone(),
                name,
                query_type,
                action: Action::Allow,
                rule,
            });
            egress.record.broken().is_none()
        }
        Outcome::Refused { rule, reason } => {
            let (change, entry) = egress.change(&name, 443);
            let refusal = Refusal {
                host: name,
                port: 0,
                reason: *reason,
                detail: String::new(),
                rule: rule.clone(),
                change,
                entry,
                of_request: false,
            };
            blocked(egress, refusal, query_type).await
        }
        Outcome::Malformed(why) => {
            let refusal = Refusal {
                host: name,
                port: 0,
                reason: *why,
                detail: "a question that cannot be read".to_owned(),
                rule: crate::types::RuleRef::default_rule("network.resolver"),
                change: None,
                entry: None,
                of_request: false,
            };
            blocked(egress, refusal, query_type).await
        }
    }
}

fn is_new(questions: &RefCell<BTreeSet<(String, String)>>, name: &str, query_type: &str) -> bool {
    let mut questions = questions.borrow_mut();
    questions.len() < MAX_QUESTIONS && questions.insert((name.to_owned(), query_type.to_owned()))
}

async fn blocked<R: Recorder + 'static>(
    egress: &EgressContext<R>,
    refusal: Refusal,
    query_type: String,
) -> bool {
    let Some(count) = egress.count(&refusal) else { return egress.record.broken().is_none() };
    let event = Event::DnsBlocked {
        server_id: egress.server.clone(),
        name: refusal.host,
        query_type,
        action: Action::Block,
        reason: refusal.reason.to_string(),
        rule: refusal.rule,
        change: refusal.change,
        count,
    };
    egress.record.commit(event).await.is_ok()
}
