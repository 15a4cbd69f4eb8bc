//! Tools that the provider runs for a request: treated as tools of the agent, allowed if the agent itself may reach
//! the same place, or if a rule names them. For the rest a person is asked, or they are refused, as for a connection.

use std::rc::Rc;

use hyper::StatusCode;
use hyper::body::Bytes;
use serde_json::json;

use super::{Model, Reply};
use agentsh_base::remedy;
use agentsh_base::types::{RuleRef, ServerId};
use agentsh_guard::{Outcome, Reason, Report, Verdict};
use agentsh_llm::Provider;
use agentsh_llm::hosted::{self, Hosted, HostedReach};
use agentsh_mcp::of_model_call;
use agentsh_net::Allowlist;
use agentsh_net::allow::Permission;
use agentsh_net::ask::Ask;
use agentsh_policy::domain::{self, Host};
use agentsh_policy::mcp::AGENT;
use agentsh_store::{Event, escape, redact};

/// The hosts that the agent may connect to, and who is asked about others.
pub struct Reachable {
    pub allow: Allowlist,
    pub ask: Option<Rc<dyn Ask>>,
}

/// Characters of a URL that are shown and recorded.
const MAX_SHOWN: usize = 200;

/// The verdict about one action of the provider.
struct HostedVerdict {
    outcome: Outcome,
    reason: Reason,
    rule: RuleRef,
    /// For people: what is refused.
    why: String,
    /// The command or policy line that allows it.
    remedy: String,
}

impl HostedVerdict {
    fn allow(reason: Reason, rule: RuleRef) -> Self {
        Self { outcome: Outcome::Allow, reason, rule, why: String::new(), remedy: String::new() }
    }

    fn block(rule: RuleRef, why: String, remedy: String) -> Self {
        Self { outcome: Outcome::Block, reason: Reason::DestinationNotAllowed, rule, why, remedy }
    }
}

impl Model {
    /// Sets the hosts that the agent may reach, once its network is open. Until then the provider contacts
    /// nothing for it.
    pub fn may_reach(&self, reachable: Reachable) {
        // Set only once: a session has one agent.
        let _ = self.reachable.set(reachable);
    }

    /// The request as forwarded, if the policy allows everything that it makes the provider do.
    pub(super) async fn allow_hosted(
        &self,
        provider: Provider,
        all: &[Hosted],
        body: Bytes,
    ) -> Result<Bytes, Reply> {
        let mut narrows = false;
        for one in all {
            let mut said = self.judge_hosted(one).await;
            if said.reason == Reason::DestinationNotAllowed && hosted::has_index(provider, one) {
                said.outcome = Outcome::Rewrite;
                narrows = true;
            }
            self.write_down(one, &said).await;
            if said.outcome == Outcome::Block {
                let why = format!("{}, by {}; {}", said.why, said.rule, said.remedy);
                return Err(self.withheld_reply(provider, StatusCode::FORBIDDEN, &why));
            }
            if said.outcome == Outcome::Rewrite {
                let why = format!(
                    "`{}` of the model's provider finds only what is in its index and opens no pages, because the policy does not allow every host; {}",
                    one.tool, said.remedy
                );
                if self.is_new(&why) {
                    self.record.note(&why);
                }
            }
        }
        if !narrows {
            return Ok(body);
        }
        hosted::within_index(&body).map(Bytes::from).map_err(|error| {
            self.withheld_reply(provider, StatusCode::BAD_REQUEST, &format!("the request is {error}"))
        })
    }

    async fn judge_hosted(&self, one: &Hosted) -> HostedVerdict {
        let lists = &self.facts.policy.mcp;
        let names = [one.tool.as_str(), one.written.as_str()];
        let denied = names.iter().filter(|name| !name.is_empty()).find_map(|name| {
            lists.own_tool_denied(name).filter(|answer| answer.enforced).map(|answer| answer.rule)
        });
        if let Some(rule) = denied {
            let why = format!("the request has the model's provider use `{}`, which is denied", one.tool);
            let remedy = "the user can remove the rule".to_owned();
            return HostedVerdict { reason: Reason::ToolDenied, ..HostedVerdict::block(rule, why, remedy) };
        }
        if let Some(rule) = lists.own_tool_allowed(&one.tool) {
            return HostedVerdict::allow(Reason::ToolAllowed, rule.clone());
        }
        match &one.reach {
            HostedReach::Provider => HostedVerdict::allow(Reason::NoRule, default_rule()),
            HostedReach::Url(url) => self.check_reach(one, url, "GET").await,
            HostedReach::Server(url) => self.check_reach(one, url, "POST").await,
            HostedReach::Domains(domains) => self.reach_all(one, domains),
            HostedReach::Anywhere => HostedVerdict::block(
                default_rule(),
                format!(
                    "the model's provider would use `{}`, which reaches more than the policy names",
                    one.tool
                ),
                remedy_by_name(&one.tool),
            ),
        }
    }

    /// Whether one place may be reached with requests of one kind.
    async fn check_reach(&self, one: &Hosted, url: &str, method: &str) -> HostedVerdict {
        let refuse = |rule, what: &str, remedy| {
            let shown = display_text(url);
            HostedVerdict::block(
                rule,
                format!("the model's provider would ask '{shown}' ({}): {what}", one.tool),
                remedy,
            )
        };
        let Some((host, text, port, target)) = parse_url(url) else {
            let why = "programs read this URL in different ways";
            return refuse(default_rule(), why, remedy_by_name(&one.tool));
        };
        let Some(Reachable { allow, ask }) = self.reachable.get() else {
            return refuse(default_rule(), "no host is allowed yet", remedy_by_name(&one.tool));
        };
        let decision = allow.decide(&host, port);
        let line = || {
            let entry = agentsh_policy::allow_entry(&text, port).unwrap_or_default();
            format!("to allow it: {}", remedy::shown(&agentsh_policy::allow_line(None, &entry)))
        };
        match decision.outcome {
            Permission::Allowed => {
                let is_meant = decision.requests.is_empty()
                    || decision.requests.iter().any(|rule| rule.value.matches(method, &target));
                if is_meant {
                    return HostedVerdict::allow(Reason::NoRule, decision.rule);
                }
                refuse(decision.rule, "the rule of this host names other requests", remedy_by_name(&one.tool))
            }
            Permission::Asked => {
                let Some(ask) = ask else { return refuse(decision.rule, "no rule names this host", line()) };
                match ask.ask(&text, port).await {
                    Ok(()) => HostedVerdict::allow(Reason::Approved, decision.rule),
                    Err(code) => refuse(decision.rule, &format!("no rule names this host ({code})"), line()),
                }
            }
            Permission::Refused => refuse(decision.rule, "no rule allows this host", line()),
        }
    }

    /// Domains with everything below them, by any request.
    fn reach_all(&self, one: &Hosted, domains: &[String]) -> HostedVerdict {
        let is_open = |host: &str| {
            let allow = self.reachable.get().map(|reachable| &reachable.allow)?;
            let decision = allow.decide(&domain::normalise(host).ok()?, 443);
            (decision.outcome == Permission::Allowed && decision.requests.is_empty()).then_some(decision.rule)
        };
        let mut rule = None;
        for domain in domains {
            let open = is_open(domain).and_then(|rule| is_open(&format!("a.b.{domain}")).map(|_| rule));
            let Some(open) = open else {
                let why = format!(
                    "the model's provider would use `{}` at '{}' and everything below it, which no rule allows",
                    one.tool,
                    display_text(domain)
                );
                return HostedVerdict::block(default_rule(), why, remedy_by_name(&one.tool));
            };
            rule.get_or_insert(open);
        }
        HostedVerdict::allow(Reason::NoRule, rule.unwrap_or_else(default_rule))
    }

    /// A conversation is sent again with every turn: what is allowed is recorded once.
    async fn write_down(&self, one: &Hosted, said: &HostedVerdict) {
        let is_new = self.is_new(&format!("{one:?} {:?} {}", said.outcome, said.rule));
        if !is_new && said.outcome != Outcome::Block {
            return;
        }
        let input = match &one.reach {
            HostedReach::Url(url) | HostedReach::Server(url) => json!({ "url": display_text(url) }),
            HostedReach::Domains(domains) => {
                json!({ "domains": domains.iter().map(|one| display_text(one)).collect::<Vec<_>>() })
            }
            HostedReach::Provider | HostedReach::Anywhere => json!({}),
        };
        let (server, tool) = (ServerId(AGENT.to_owned()), display_text(&one.tool));
        let id = serde_json::Value::Null;
        self.record.journal.record(Event::McpToolCalled {
            server_id: server.clone(),
            tool_name: tool.clone(),
            jsonrpc_id: id.clone(),
            input: redact::redact(&input),
        });
        let mut report = Report::default();
        report.rule(Verdict::new(said.outcome, said.reason, said.rule.clone()));
        for event in of_model_call(&server, &tool, &id, &report.fold()) {
            self.record.journal.record(event);
        }
        if said.outcome == Outcome::Block {
            // It is not forwarded either way.
            let _ = self.record.journal.flush().await;
        }
    }
}

fn default_rule() -> RuleRef {
    RuleRef::default_rule("network.allow")
}

/// The policy line that allows a tool of the provider, whatever it reaches.
pub(super) fn remedy_by_name(tool: &str) -> String {
    format!("to allow it: {}", remedy::shown(&agentsh_policy::own_tool_entry(tool)))
}

fn display_text(text: &str) -> String {
    escape::line(&text.chars().take(MAX_SHOWN).collect::<String>()).into_owned()
}

/// Host, as it is compared and as it is written, port, and path with query. None: parsers could differ about it.
fn parse_url(text: &str) -> Option<(Host, String, u16, String)> {
    let is_plain = text.bytes().all(|byte| byte.is_ascii_graphic() && !b"\\\"<>^`{|}".contains(&byte));
    let (_, rest) = text.split_once("://").filter(|_| is_plain)?;
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let is_host = |byte: u8| byte.is_ascii_alphanumeric() || b".-_:[]".contains(&byte);
    if authority.is_empty() || !authority.bytes().all(is_host) {
        return None;
    }
    let url = url::Url::parse(text).ok().filter(|url| ["http", "https"].contains(&url.scheme()))?;
    let name = url.host_str()?.trim_start_matches('[').trim_end_matches(']').to_owned();
    let host = domain::normalise(&name).ok()?;
    let query = url.query().map(|query| format!("?{query}")).unwrap_or_default();
    Some((host, name, url.port_or_known_default()?, format!("{}{query}", url.path())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ambiguous_url_is_not_accepted() {
        let of = |text| parse_url(text).map(|(_, name, port, target)| format!("{name} {port} {target}"));
        assert_eq!(of("https://A.test/p?q=1#f").as_deref(), Some("a.test 443 /p?q=1"));
        assert_eq!(of("http://a.test:8080").as_deref(), Some("a.test 8080 /"));
        assert_eq!(of("https://[2001:db8::1]/").as_deref(), Some("2001:db8::1 443 /"));
        for odd in [
            "https://a.test\\@e.test/",
            "https://a.test@e.test/",
            "https://a.test%2f@e.test/",
            "https:a.test",
            "https:///a.test/",
            "//a.test/",
            "https://a.t\test/",
            "https://ä.test/",
            "gs://bucket/x",
            "ftp://a.test/",
            "a.test/x",
        ] {
            assert_eq!(of(odd), None, "{odd}");
        }
    }
}
