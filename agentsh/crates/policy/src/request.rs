//! Request rules with `inspect`: `GET /repos/**`.

use agentsh_base::url_path::components;

use super::glob;
use super::model::RequestRule;
use super::path;

/// Longest body of a fetch, in bytes: what git sends without chunks (`http.postBuffer`).
pub const MAX_FETCH_BODY: u64 = 1 << 20;

impl RequestRule {
    /// Reads `METHOD /path`.
    ///
    /// # Errors
    /// Says what is wrong with it.
    pub fn parse(text: &str) -> Result<Self, String> {
        let example = "write a method and a path, such as `GET /repos/**`";
        let (method, path) = text.split_once(' ').ok_or_else(|| example.to_owned())?;
        let path = path.trim_start();
        if method.is_empty()
            || !method.bytes().all(|byte| byte.is_ascii_uppercase() || b"*?-".contains(&byte))
        {
            return Err(format!("`{method}` is not a method in upper case, or `*`; {example}"));
        }
        if !path.starts_with('/') {
            return Err(format!("the path starts with `/`; {example}"));
        }
        if path.contains(['#', ' ', '\\', '%']) {
            return Err("a path is written without `#`, `\\`, spaces and %-escapes".to_owned());
        }
        if path.split_once('?').is_some_and(|(_, query)| query.contains(['=', '&'])) {
            return Err("a query is not part of a rule: every query is let through".to_owned());
        }
        path::check(path)?;
        if path.split('/').skip(1).any(|part| part == ".") || path.contains("//") {
            return Err("a path is written without empty components and `.`".to_owned());
        }
        Ok(Self { method: method.to_owned(), path: path.to_owned(), is_git_fetch: false })
    }

    /// The two requests of a fetch from one repository: which branches are there, and then for their objects. No other path
    /// and no other query; what is sent is bounded by [`MAX_FETCH_BODY`].
    ///
    /// # Errors
    /// When the path cannot be written as a rule.
    pub fn git_fetch(repository: &str) -> Result<[Self; 2], String> {
        let repository = repository.trim_end_matches('/');
        let rule = |text: String| Self::parse(&text).map(|rule| Self { is_git_fetch: true, ..rule });
        if repository.contains(['*', '?', '[']) {
            return Err("a repository is one path".to_owned());
        }
        Ok([
            rule(format!("GET {repository}/info/refs"))?,
            rule(format!("POST {repository}/git-upload-pack"))?,
        ])
    }

    /// Whether a request is meant. `target` is the request's path and query. A path that a server could read in more
    /// than one way is meant only where it is an escaped slash, and each way is meant: npm asks for `@scope%2fname`.
    #[must_use]
    pub fn matches(&self, method: &str, target: &str) -> bool {
        if self.is_git_fetch {
            let query = target.split_once('?').map(|(_, query)| query);
            if query != (method == "GET").then_some("service=git-upload-pack") {
                return false;
            }
        }
        let is_meant = |target: &str| {
            components(target).is_some_and(|wanted| path::is(&rule_components(&self.path), &wanted))
        };
        let with = |slash: &str| target.replace("%2f", slash).replace("%2F", slash);
        let as_slash = with("/");
        // Some servers read it as part of a name, so it matches any letter. A literal path names it in full.
        let as_letter = || as_slash == target || !self.path.contains('*') || is_meant(&with("_"));
        glob::matches(&self.method, method) && is_meant(&as_slash) && as_letter()
    }

    /// Whether every request that `inner` means is meant here too. May say no where the answer is yes.
    #[must_use]
    pub fn covers(&self, inner: &Self) -> bool {
        (!self.is_git_fetch || inner.is_git_fetch)
            && glob::covers(&self.method, &inner.method)
            && (self.path == inner.path
                || self.path == "/**"
                || path::is_pattern_covered(&rule_components(&self.path), &rule_components(&inner.path)))
    }
}

impl std::fmt::Display for RequestRule {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.method, self.path)
    }
}

/// A rule's path: a slash at its end is a separate component, as in [`components`].
fn rule_components(path: &str) -> Vec<String> {
    path.split('/').skip(1).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]
    use super::*;

    fn rule(text: &str) -> RequestRule {
        RequestRule::parse(text).unwrap()
    }

    #[test]
    fn git_fetch_allows_two_requests_without_other_queries() {
        let rules = RequestRule::git_fetch("/a/b.git/").unwrap();
        let allows = |method: &str, target: &str| rules.iter().any(|rule| rule.matches(method, target));
        assert!(allows("GET", "/a/b.git/info/refs?service=git-upload-pack"));
        assert!(allows("POST", "/a/b.git/git-upload-pack"));
        for (method, target) in [
            ("GET", "/a/b.git/info/refs"),
            ("GET", "/a/b.git/info/refs?service=git-upload-pack&data=secret"),
            ("GET", "/a/b.git/info/refs?x=secret"),
            ("GET", "/other/info/refs?service=git-upload-pack"),
            ("GET", "/secret/a/b.git/info/refs?service=git-upload-pack"),
            ("POST", "/a/b.git/git-upload-pack?data=secret"),
            ("POST", "/a/b.git/git-receive-pack"),
        ] {
            assert!(!allows(method, target), "{method} {target}");
        }
        assert!(RequestRule::git_fetch("/**").is_err());
        assert!(!rules[1].covers(&rule("POST /a/b.git/git-upload-pack")), "a plain rule lets more through");
    }

    #[test]
    fn request_rule_matches_the_requests_of_the_table() {
        for (text, method, target, expected) in [
            ("GET /repos/**", "GET", "/repos/a/b?x=1", true),
            ("GET /repos/**", "GET", "/repos", true),
            ("GET /repos/**", "GET", "/repos/", true),
            ("GET /repos/**", "GET", "/repository", false),
            ("GET /repos/**", "POST", "/repos/a", false),
            ("GET /repos/**", "get", "/repos/a", false),
            ("GET /repos/*/issues", "GET", "/repos/a/issues", true),
            ("GET /repos/*/issues", "GET", "/repos/a/b/issues", false),
            ("GET /repos/*/issues", "GET", "/repos/a/issues/", false),
            ("GET /", "GET", "/", true),
            ("GET /", "GET", "/a", false),
            ("* /**", "DELETE", "/anything/at/all", true),
            ("GET /a", "GET", "/%61", true),
            ("GET /a b", "GET", "/a", false),
            ("GET /repos/**", "GET", "/repos/../admin", false),
            ("GET /repos/**", "GET", "/repos/%2e%2e/admin", false),
            ("GET /repos/**", "GET", "/repos/%2E./admin", false),
            ("GET /repos/**", "GET", "/repos/.", false),
            ("GET /repos/**", "GET", "/repos/..%2fadmin", false),
            ("GET /repos/**", "GET", "/repos/a%2F..%2fadmin", false),
            ("GET /repos/**", "GET", "/repos%2fa", false),
            ("GET /repos/**", "GET", "/%2frepos/a", false),
            ("GET /**", "GET", "/@scope%2fname?write=true", true),
            ("GET /npm/**", "GET", "/npm/@scope%2Fname", true),
            ("PUT /@scope/name", "PUT", "/@scope%2fname", true),
            ("PUT /@scope/name", "PUT", "/@scope%2fother", false),
            ("GET /a/*/c", "GET", "/a/b%2fx/c", false),
            ("GET /a/*/c", "GET", "/a%2fb/c", false),
            ("GET /**", "GET", "/a%252fb", false),
            ("GET /repos/**", "GET", "/repos/..%5cadmin", false),
            ("GET /repos/**", "GET", "/repos\\..\\admin", false),
            ("GET /repos/**", "GET", "/repos//admin", false),
            ("GET /repos/**", "GET", "//repos/admin", false),
            ("GET /repos/**", "GET", "/repos/..;/admin", false),
            ("GET /repos/**", "GET", "/repos/%252e%252e/admin", false),
            ("GET /repos/**", "GET", "/repos/%00", false),
            ("GET /repos/**", "GET", "/repos/%zz", false),
            ("GET /repos/**", "GET", "/repos/%f", false),
            ("GET /repos/**", "GET", "/repos/%ff", false),
            ("GET /repos/**", "GET", "repos/a", false),
            ("OPTIONS /**", "OPTIONS", "*", false),
        ] {
            let found = RequestRule::parse(text).is_ok_and(|rule| rule.matches(method, target));
            assert_eq!(found, expected, "{text} on {method} {target}");
        }
    }

    #[test]
    fn request_rule_covers_the_narrower_rules_of_the_table() {
        for (outer, inner, expected) in [
            ("* /**", "GET /a/**", true),
            ("GET /a/**", "GET /a/b", true),
            ("GET /a/**", "GET /a/*/c", true),
            ("GET /a/*", "GET /a/**", false),
            ("GET /a/*", "GET /a/b/c", false),
            ("GET /a", "GET /a/b", false),
            ("GET /a/**", "POST /a/b", false),
            ("GET /a/**", "* /a/b", false),
        ] {
            assert_eq!(rule(outer).covers(&rule(inner)), expected, "{outer} over {inner}");
        }
    }

    #[test]
    fn malformed_request_rules_are_refused() {
        for text in [
            "GET",
            "/repos",
            "get /repos",
            "GET repos",
            "GET https://example.com/",
            "GET /a#b",
            "GET /a?b=c",
            "GET /a%20b",
            "GET /a/../b",
            "GET /a//b",
            "GET /a/./b",
            "GET /a**",
            " /a",
            "",
        ] {
            assert!(RequestRule::parse(text).is_err(), "{text}");
        }
    }
}
