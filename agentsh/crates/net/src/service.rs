//! Serves a sandbox's connections and DNS queries.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::net::{TcpListener, UdpSocket};
use std::rc::Rc;
use std::time::Duration;

use tokio::task::AbortHandle;

use super::busy_poller::BusyPoller;
use super::dns::{Answer, Outcome, Question};
use super::egress_context::{EgressContext, Origin, Refusal};
use super::{dns_server, relay};
use crate::policy::domain::Host;
use crate::store::words::Action;
use crate::store::{Event, Recorder};

/// Limit of distinct recorded queries per sandbox.
const MAX_QUESTIONS: usize = 1000;

/// Dropping it stops accepting; open connections continue.
pub struct Service<R> {
    egress: Rc<EgressContext<R>>,
    tasks: Vec<AbortHandle>,
}

/// Serves until the [`Service`] is dropped. Call inside a `LocalSet`.
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
        // A listener that fails takes no connection: the program sees no answer.
        tasks.push(agentsh_base::task::spawn_local(relay::serve(listener, egress, wakeful)).abort_handle());
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
    tasks.push(agentsh_base::task::spawn_local(over_udp).abort_handle());
    tasks.push(agentsh_base::task::spawn_local(over_tcp).abort_handle());
    Service { egress, tasks }
}

impl<R: Recorder + 'static> Service<R> {
    /// Gives the connections of an ended sandbox time to be recorded.
    pub async fn finish(self, limit: Duration) {
        let quiet = async {
            while self.egress.live.get() > 0 {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        // Connections that still send continue until the session ends.
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

/// False when the query may not be answered: a refusal must be on disk first.
async fn observe<R: Recorder + 'static>(
    egress: &EgressContext<R>,
    questions: &RefCell<BTreeSet<(String, String)>>,
    answered: &Answer,
) -> bool {
    egress.record.wait_for_room().await;
    let (name, query_type) = match &answered.asked {
        Some(Question { name, rtype }) => (name.clone(), rtype.to_string()),
        None => (String::new(), String::new()),
    };
    match &answered.outcome {
        Outcome::Answered(..) | Outcome::Empty => {
            if let (Outcome::Answered(v4, v6), Origin::Kernel(policed)) = (&answered.outcome, &egress.origin)
            {
                // Before the response. If the kernel has no room, the connect is refused with an event.
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
                detail: "a DNS query that cannot be parsed".to_owned(),
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
    let Some(count) = egress.count(&refusal, &query_type) else { return egress.record.broken().is_none() };
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
