//! The project's own git remotes over https: fetching, under inspection, and nothing more. A push is a right of its own, and
//! so is everything else on the host.

use url::Url;

use crate::policy::domain::{self, Host};
use crate::policy::{NetworkPolicy, NetworkRule, RequestRule, Ruled};
use crate::types::RuleRef;

use super::{Context, repositories};

/// What a fetch asks: what is there, then for it. A question for a push is judged as the push.
const FETCHING: [&str; 2] = ["GET /**/info/refs", "POST /**/git-upload-pack"];

/// The rules of the agent, with the hosts of the project's remotes among them. What a rule of the policy names stays as it is.
///
/// A remote in a private network needs a rule of the policy: a configuration of git may have come with the project.
#[must_use]
pub fn with_remotes(rules: NetworkPolicy, context: &Context) -> NetworkPolicy {
    let mut rules = rules;
    for (address, config) in repositories::addresses(context) {
        let rule =
            RuleRef { id: "remote of the project".to_owned(), file: config.display().to_string(), line: 0 };
        let Some((host, value)) = fetching(&address, &rule) else { continue };
        let is_known = value.ports().iter().all(|port| rules.rule_for(&host, *port).is_some());
        if !is_known {
            rules.allow.push(Ruled { value, rule });
        }
    }
    rules
}

/// None for what is not an address over https.
fn fetching(address: &str, rule: &RuleRef) -> Option<(Host, NetworkRule)> {
    let url = Url::parse(address).ok().filter(|url| url.scheme() == "https")?;
    let host = domain::normalise(url.host_str()?).ok().filter(|host| matches!(host, Host::Name(_)))?;
    let pattern = domain::parse_pattern(url.host_str()?).ok()?;
    let mut value = NetworkRule::plain(pattern, vec![url.port_or_known_default()?]);
    value.inspect = true;
    let requests = FETCHING.iter().filter_map(|text| RequestRule::parse(text).ok());
    value.requests = requests.map(|value| Ruled { value, rule: rule.clone() }).collect();
    Some((host, value))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

    use super::*;

    #[test]
    fn a_remote_may_be_fetched_from() {
        let rule = RuleRef::default_rule("r");
        let (_, value) = fetching("https://user@Git.example:8443/a/b.git", &rule).unwrap();
        let allows =
            |method: &str, path: &str| value.requests.iter().any(|one| one.value.matches(method, path));
        assert!(value.inspect && value.ports == [8443] && value.addresses.is_empty());
        assert!(allows("GET", "/a/b.git/info/refs?service=git-upload-pack"));
        assert!(allows("POST", "/a/b.git/git-upload-pack"));
        assert!(!allows("POST", "/a/b.git/git-receive-pack") && !allows("GET", "/a/b.git/HEAD"));
        for other in [
            "git@git.example:a/b",
            "ssh://git@git.example/a",
            "http://git.example/a",
            "https://192.0.2.1/a",
            "/a/b",
            "",
        ] {
            assert!(fetching(other, &rule).is_none(), "{other}");
        }
    }
}
