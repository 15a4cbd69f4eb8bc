//! The project's own https git remotes: only fetching, with inspection. A push, or anything else on the host, needs a
//! rule.

use url::Url;

use agentsh_base::types::RuleRef;
use agentsh_policy::domain::{self, Host};
use agentsh_policy::{HostRule, NetworkRule, Precedence, RequestRule, Ruled};
use agentsh_sandbox::spec::{Contribution, Feature};

use super::project_sources::ApprovedSources;
use super::{Context, repositories};

/// The name of the kind in [`super::project_sources`].
pub const KIND: &str = "the remote";

/// The hosts of the project's remotes. What a rule of the policy names stays as it is.
///
/// A remote in a private network needs a rule of the policy: a configuration of git may have come with the project.
#[must_use]
pub fn contribution(context: &Context, known: &ApprovedSources) -> Contribution {
    let mut part = Contribution::new(Feature::Remotes);
    let addresses = repositories::addresses(context).into_iter();
    for (address, config) in addresses.filter(|(address, _)| known.holds(KIND, address)) {
        let rule =
            RuleRef { id: "remote of the project".to_owned(), file: config.display().to_string(), line: 0 };
        let Some(value) = fetching(&address, &rule) else { continue };
        part.hosts.push(HostRule { rule: Ruled { value, rule }, precedence: Precedence::IfUnruled });
    }
    part
}

/// The addresses that the project's configuration names, for [`super::project_sources`].
#[must_use]
pub fn named_remotes(context: &Context) -> Vec<(&'static str, String)> {
    repositories::addresses(context).into_iter().map(|(address, _)| (KIND, address)).collect()
}

/// None for what is not an address over https.
fn fetching(address: &str, rule: &RuleRef) -> Option<NetworkRule> {
    let url = Url::parse(address).ok().filter(|url| url.scheme() == "https")?;
    domain::normalise(url.host_str()?).ok().filter(|host| matches!(host, Host::Name(_)))?;
    let pattern = domain::parse_pattern(url.host_str()?).ok()?;
    let mut value = NetworkRule::plain(pattern, vec![url.port_or_known_default()?]);
    value.inspect = true;
    // Git asks for a repository by its name with or without `.git`, as its remote is written.
    let requests = RequestRule::git_fetch(url.path()).ok()?;
    value.requests = requests.into_iter().map(|value| Ruled { value, rule: rule.clone() }).collect();
    Some(value)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

    use super::*;

    #[test]
    fn git_remote_is_allowed_for_fetching() {
        let rule = RuleRef::default_rule("r");
        let value = fetching("https://user@Git.example:8443/a/b.git", &rule).unwrap();
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
