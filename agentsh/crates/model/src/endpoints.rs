//! Where the agent's model is, and how its answers are checked there.

use agentsh_agents::{Endpoint, Scheme, TlsInspection};
use agentsh_base::types::RuleRef;
use agentsh_egress::authorities;
use agentsh_host::Facts;
use agentsh_host::users_networks::users_networks;
use agentsh_policy::{LlmPolicy, NetworkRule, RequestRule, Ruled, domain};
use agentsh_sandbox::spec::{Contribution, Feature, HostRule, Precedence};
use agentsh_sandbox::{Enforcement, State};

/// How the session gets at what goes to and fro.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interception {
    /// There is no TLS.
    Plain,
    /// TLS ends at agentsh, with a certificate of the session's authority.
    EndsTls,
}

/// None: its answers are not judged.
#[must_use]
pub fn interception(facts: &Facts, endpoint: &Endpoint) -> Option<Interception> {
    let enabled = facts.policy.llm.enabled.as_ref().map(|enabled| enabled.value);
    let can_prove = || authorities::can_prove(&facts.context.env);
    choose_interception(enabled, endpoint, can_prove)
}

fn choose_interception(
    enabled: Option<bool>,
    endpoint: &Endpoint,
    can_prove: impl Fn() -> bool,
) -> Option<Interception> {
    match (enabled, endpoint.scheme, endpoint.judged) {
        (Some(false), _, _)
        | (_, _, TlsInspection::Never)
        | (None, Scheme::Https, TlsInspection::WhenAsked) => None,
        (_, Scheme::Http, _) => Some(Interception::Plain),
        (Some(true), Scheme::Https, _) => Some(Interception::EndsTls),
        (None, Scheme::Https, TlsInspection::ByDefault) => can_prove().then_some(Interception::EndsTls),
    }
}

/// Whether questions to unknown models without TLS are recognised.
#[must_use]
pub fn is_everywhere(facts: &Facts) -> bool {
    facts.policy.llm.enabled.as_ref().is_some_and(|enabled| enabled.value)
}

/// Network rules for the endpoints of the agent's model. `ends_tls` says for which of them agentsh terminates
/// TLS.
#[must_use]
pub fn of_endpoints(endpoints: &[Endpoint], ends_tls: impl Fn(&Endpoint) -> bool) -> Contribution {
    let mut part = Contribution::new(Feature::Adapter);
    for endpoint in endpoints {
        let rule = RuleRef { id: endpoint.why.clone(), file: "agent".to_owned(), line: 0 };
        let Ok(host) = domain::normalise(&endpoint.host) else { continue };
        if host.is_local() {
            part.loopback.push(Ruled { value: endpoint.port, rule });
            continue;
        }
        let Ok(pattern) = domain::parse_pattern(&endpoint.host) else { continue };
        let mut value = NetworkRule::plain(pattern, vec![endpoint.port]);
        value.addresses = users_networks(&rule);
        let requests = endpoint.requests.iter().filter_map(|request| RequestRule::parse(request).ok());
        value.requests = requests.map(|value| Ruled { value, rule: rule.clone() }).collect();
        value.inspect = ends_tls(endpoint) || !value.requests.is_empty();
        // The user's own rule for a login host takes precedence.
        let precedence = if endpoint.requests.is_empty() { Precedence::First } else { Precedence::Last };
        part.hosts.push(HostRule { rule: Ruled { value, rule }, precedence });
    }
    part
}

/// How the model is reached, for the report. None: there is no known model.
#[must_use]
pub fn model_enforcement(facts: &Facts, endpoints: &[Endpoint]) -> Option<Enforcement> {
    const LAYER: &str = "model";
    const MODEL_LAYER_REQUEST: &str = "tool calls are judged before the agent sees them";
    let (mut judged, mut unread) = (Vec::new(), Vec::new());
    let (llm, is_everywhere) = (&facts.policy.llm, is_everywhere(facts));
    for endpoint in endpoints.iter().filter(|endpoint| endpoint.judged != TlsInspection::Never) {
        let place = format!("{}:{}", endpoint.host, endpoint.port);
        match interception(facts, endpoint) {
            Some(Interception::Plain) => judged.push(format!("{place} (without TLS)")),
            Some(Interception::EndsTls) => {
                judged.push(format!("{place} (TLS ends at the session's authority)"))
            }
            None => unread.push(place),
        }
    }
    if is_everywhere && !judged.is_empty() {
        judged.push("other requests without TLS".to_owned());
    }
    let unread = unread.join(", ");
    // A user who switched it off knows that.
    let is_off = llm.enabled.as_ref().is_some_and(|enabled| !enabled.value);
    let why =
        || format!("agentsh does not read requests to {unread}; to judge them: `llm: {{enabled: true}}`");
    match (judged.is_empty(), unread.is_empty()) {
        _ if is_off => None,
        (true, true) if is_everywhere => Some(Enforcement::weakened(
            LAYER,
            MODEL_LAYER_REQUEST,
            "judged without TLS",
            State::Degraded,
            "the model hosts of this agent are not known: requests over TLS, batches, and APIs other than those of Anthropic, OpenAI, Google and Ollama are not read",
        )),
        (true, true) if *llm != LlmPolicy::default() || facts.policy.mcp.denies_own_tools() => {
            Some(Enforcement::weakened(
                LAYER,
                MODEL_LAYER_REQUEST,
                "not judged",
                State::Absent,
                "the model hosts of this agent are not known; to judge requests without TLS: `llm: {enabled: true}`",
            ))
        }
        (true, true) => None,
        (true, false) => {
            Some(Enforcement::weakened(LAYER, MODEL_LAYER_REQUEST, "not judged", State::Absent, why()))
        }
        (false, true) => {
            Some(Enforcement::enforced(LAYER, format!("{MODEL_LAYER_REQUEST}: {}", judged.join(", "))))
        }
        (false, false) => {
            let got = judged.join(", ");
            Some(Enforcement::weakened(LAYER, MODEL_LAYER_REQUEST, &got, State::Degraded, why()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn endpoint(scheme: Scheme, judged: TlsInspection) -> Endpoint {
        Endpoint {
            scheme,
            host: "model.test".to_owned(),
            port: 443,
            why: String::new(),
            judged,
            key: None,
            only_keys: false,
            requests: &[],
        }
    }

    #[test]
    fn model_tls_is_inspected_where_supported_or_configured() {
        let way = |enabled, scheme, judged| choose_interception(enabled, &endpoint(scheme, judged), || true);
        let (plain, tls) = (Some(Interception::Plain), Some(Interception::EndsTls));
        assert_eq!(way(None, Scheme::Http, TlsInspection::WhenAsked), plain);
        assert_eq!(way(None, Scheme::Https, TlsInspection::WhenAsked), None);
        assert_eq!(way(None, Scheme::Https, TlsInspection::ByDefault), tls);
        assert_eq!(way(Some(true), Scheme::Https, TlsInspection::WhenAsked), tls);
        assert_eq!(way(Some(true), Scheme::Https, TlsInspection::Never), None);
        for scheme in [Scheme::Http, Scheme::Https] {
            assert_eq!(way(Some(false), scheme, TlsInspection::ByDefault), None);
        }
        // Without authorities no server can be verified: rather unread than unreachable.
        assert_eq!(
            choose_interception(None, &endpoint(Scheme::Https, TlsInspection::ByDefault), || false),
            None
        );
    }
}
