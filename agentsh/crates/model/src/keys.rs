//! API keys of the model that stay outside: the agent has placeholders, and the session adds the keys to requests.

use std::cell::RefCell;
use std::collections::BTreeMap;

use hyper::header::{COOKIE, HeaderMap, HeaderValue};
use hyper::http::uri::PathAndQuery;
use hyper::{Request, Uri};

use agentsh_egress::secret_search::SecretSearch;
use agentsh_net::allow::is_local;
use agentsh_net::channel::ChannelTarget;
use agentsh_policy::domain::{self, Host};

/// Variables in which agents look for a key.
const VARIABLES: [&str; 8] = [
    "ANTHROPIC_API_KEY",
    "ANTHROPIC_AUTH_TOKEN",
    "CLAUDE_CODE_OAUTH_TOKEN",
    "OPENAI_API_KEY",
    "CODEX_API_KEY",
    "GEMINI_API_KEY",
    "GOOGLE_API_KEY",
    "OPENROUTER_API_KEY",
];

/// Headers in which clients send it.
const HEADERS: [&str; 4] = ["authorization", "x-api-key", "x-goog-api-key", "api-key"];

/// Parts of names of headers, cookies and query parameters that carry a key.
const KEY_WORDS: [&str; 7] =
    ["api-key", "apikey", "authorization", "auth-token", "access-token", "oauth-token", "session-token"];

/// Prefixes of load balancer cookies, which belong to no account.
const BALANCER_COOKIES: [&str; 6] = ["__cf", "_cf", "cf_", "awsalb", "gclb", "arraffinity"];

/// The part of a query in which Google's clients send it.
const IN_QUERY: &str = "key";

/// A host and port to which a key may be sent.
pub(super) type HostPort = (Host, u16);

#[derive(Default)]
pub(super) struct Keys {
    held: RefCell<BTreeMap<String, Key>>,
    /// Endpoints at which the agent has these keys of its user, and no other account.
    own: Vec<(HostPort, Vec<String>)>,
}

struct Key {
    variable: &'static str,
    value: String,
    places: Vec<HostPort>,
}

impl Keys {
    pub(super) fn new(own: Vec<(HostPort, Vec<String>)>) -> Self {
        Self { own, ..Self::default() }
    }

    /// With a key of another account, requests would go to that account, under the name of the user's own model.
    ///
    /// # Errors
    /// When the user's key for that place is known and the request has a different key.
    pub(super) fn check<B>(&self, request: &Request<B>, to: ChannelTarget<'_>) -> Result<(), String> {
        let Ok(host) = domain::normalise(to.host) else { return Ok(()) };
        let mut own = self.own.iter().filter(|(place, _)| is_at(place, &host, to.port)).peekable();
        if own.peek().is_none() {
            return Ok(());
        }
        let known: Vec<&str> = own.flat_map(|(_, keys)| keys.iter().map(String::as_str)).collect();
        let named = request.headers().iter().filter(|(name, _)| is_key_name(name.as_str()));
        let in_headers = named.map(|(_, value)| {
            let text = String::from_utf8_lossy(value.as_bytes());
            let text = text.trim();
            // A scheme and a token, or the token alone.
            text.split_once(' ').map_or(text, |(_, token)| token.trim()).to_owned()
        });
        let query = request.uri().query().unwrap_or_default();
        let in_query = url::form_urlencoded::parse(query.as_bytes())
            .filter(|(name, _)| is_key_name(name))
            .map(|(_, value)| value.into_owned());
        // An account without a key that the agent was given.
        let cookies = request.headers().get_all(COOKIE).iter().map(HeaderValue::as_bytes);
        let cookies = String::from_utf8_lossy(&cookies.collect::<Vec<_>>().join(&b';')).into_owned();
        let is_balancer = |one: &&str| {
            let name = one.to_ascii_lowercase();
            BALANCER_COOKIES.iter().any(|start| name.starts_with(start))
        };
        let in_cookies = cookies.split(';').map(str::trim).filter(|one| !is_balancer(one));
        let in_cookies = in_cookies.map(|one| one.split_once('=').map_or(one, |(_, key)| key).to_owned());
        let is_foreign = |key: &String| !key.is_empty() && !known.contains(&key.as_str());
        if in_headers.chain(in_query).chain(in_cookies).any(|key| is_foreign(&key)) {
            return Err(format!(
                "the request to {}:{} has a key that differs from the one in the agent's \
                 environment; to use another account, give its key there instead",
                to.host, to.port
            ));
        }
        Ok(())
    }

    /// Takes the keys out of an environment. `word` makes a placeholder that nobody can guess; `places` says where the key of
    /// a variable may go.
    pub(super) fn take(
        &self,
        env: &mut BTreeMap<String, String>,
        word: impl Fn(&str) -> String,
        places: impl Fn(&str) -> Vec<HostPort>,
    ) {
        for variable in VARIABLES {
            let Some(value) = env.get_mut(variable).filter(|value| !value.is_empty()) else { continue };
            let placeholder = word(variable);
            let value = std::mem::replace(value, placeholder.clone());
            self.held.borrow_mut().insert(placeholder, Key { variable, value, places: places(variable) });
        }
    }

    /// Puts the keys into a request that goes to a model: into its headers, and into the `key` of its query, where Google's
    /// clients may send theirs.
    ///
    /// # Errors
    /// When one of them is not for that place. Says where it may go.
    pub(super) fn put_on<B>(&self, request: &mut Request<B>, to: ChannelTarget<'_>) -> Result<(), String> {
        self.put(request.headers_mut(), to)?;
        if let Some(uri) = self.put_in_query(request.uri(), to)? {
            *request.uri_mut() = uri;
        }
        Ok(())
    }

    /// Whether the agent has placeholders.
    pub(super) fn holds_any(&self) -> bool {
        !self.held.borrow().is_empty()
    }

    /// Searches answers for the keys.
    pub(super) fn watch(&self) -> SecretSearch {
        SecretSearch::of_secrets(self.held.borrow().values().map(|key| key.value.as_str()))
    }

    /// None: there is no placeholder in it.
    fn put_in_query(&self, uri: &Uri, to: ChannelTarget<'_>) -> Result<Option<Uri>, String> {
        let keys = self.held.borrow();
        let is_key = |pair: &&str| pair.split_once('=').is_some_and(|(name, _)| name == IN_QUERY);
        let Some(query) = uri.query() else { return Ok(None) };
        let found = query.split('&').filter(is_key).find_map(|pair| {
            let (placeholder, key) = keys.iter().find(|(placeholder, _)| pair.contains(*placeholder))?;
            Some((pair, placeholder, key))
        });
        let Some((pair, placeholder, key)) = found else { return Ok(None) };
        key.check(to)?;
        let value: String = url::form_urlencoded::byte_serialize(key.value.as_bytes()).collect();
        let put = query.replace(pair, &pair.replace(placeholder, &value));
        let mut parts = uri.clone().into_parts();
        let target: Result<PathAndQuery, _> = format!("{}?{put}", uri.path()).parse();
        let target = target.map_err(|_| "the request's address cannot be written".to_owned())?;
        parts.path_and_query = Some(target);
        Uri::from_parts(parts).map(Some).map_err(|error| error.to_string())
    }

    fn put(&self, headers: &mut HeaderMap, to: ChannelTarget<'_>) -> Result<(), String> {
        let keys = self.held.borrow();
        for name in HEADERS {
            let Some(text) = headers.get(name).and_then(|value| value.to_str().ok()) else { continue };
            let Some((placeholder, key)) = keys.iter().find(|(placeholder, _)| text.contains(*placeholder))
            else {
                continue;
            };
            key.check(to)?;
            if let Ok(mut value) = HeaderValue::from_str(&text.replace(placeholder, &key.value)) {
                value.set_sensitive(true);
                headers.insert(name, value);
            }
        }
        Ok(())
    }
}

impl Key {
    fn check(&self, to: ChannelTarget<'_>) -> Result<(), String> {
        let (variable, here) = (self.variable, format!("{}:{}", to.host, to.port));
        let host =
            domain::normalise(to.host).map_err(|_| format!("agentsh does not know what '{here}' is"))?;
        if !self.places.iter().any(|place| is_at(place, &host, to.port)) {
            let places: Vec<String> =
                self.places.iter().map(|(host, port)| format!("{}:{port}", text(host))).collect();
            let places = if places.is_empty() { "no model here".to_owned() } else { places.join(", ") };
            return Err(format!(
                "the key in {variable} may go to {places}, not to {here}; to allow another host, set the \
                 provider's base URL in the environment"
            ));
        }
        if !to.is_tls && !is_local(&host) {
            return Err(format!(
                "the key in {variable} goes to {here} only over TLS; `llm: {{credentials: pass}}` gives it to \
                 the agent"
            ));
        }
        Ok(())
    }
}

/// However it is spelt: servers behind a gateway read `X_Api_Key` as `X-Api-Key`.
fn is_key_name(name: &str) -> bool {
    let name = name.to_ascii_lowercase().replace(['_', '.'], "-");
    let name = name.trim_start_matches('$');
    matches!(name, IN_QUERY | "token" | "auth") || KEY_WORDS.iter().any(|word| name.contains(word))
}

fn is_at((place, port): &HostPort, host: &Host, to: u16) -> bool {
    *port == to && (place == host || (is_local(place) && is_local(host)))
}

fn text(host: &Host) -> String {
    match host {
        Host::Name(name) => name.clone(),
        Host::Address(address) => address.to_string(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

    use super::*;

    const PLACE: ChannelTarget<'_> =
        ChannelTarget { host: "api.openai.com", port: 443, is_tls: true, is_one: false };

    fn keys() -> Keys {
        let keys = Keys::default();
        let mut env = BTreeMap::from([("OPENAI_API_KEY".to_owned(), "sk-real".to_owned())]);
        let places = |_: &str| {
            let host = |name| domain::normalise(name).unwrap();
            vec![(host("api.openai.com"), 443), (host("127.0.0.1"), 4000), (host("gate.lan"), 80)]
        };
        keys.take(&mut env, |name| format!("agentsh-{name}"), places);
        assert_eq!(env["OPENAI_API_KEY"], "agentsh-OPENAI_API_KEY");
        keys
    }

    fn headers() -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert("authorization", HeaderValue::from_static("Bearer agentsh-OPENAI_API_KEY"));
        headers.insert("x-other", HeaderValue::from_static("agentsh-OPENAI_API_KEY"));
        headers
    }

    #[test]
    fn placeholder_is_replaced_only_in_key_headers() {
        let mut headers = headers();
        keys().put(&mut headers, PLACE).unwrap();
        assert_eq!(headers["authorization"], "Bearer sk-real");
        assert_eq!(headers["x-other"], "agentsh-OPENAI_API_KEY");
    }

    #[test]
    fn placeholder_in_the_query_is_replaced_too() {
        let keys = keys();
        let put = |uri: &str, to| {
            let mut request = Request::builder().uri(uri).body(()).unwrap();
            keys.put_on(&mut request, to).map(|()| request.uri().to_string())
        };
        let there =
            put("/v1beta/models/m:generateContent?alt=sse&key=agentsh-OPENAI_API_KEY", PLACE).unwrap();
        assert_eq!(there, "/v1beta/models/m:generateContent?alt=sse&key=sk-real");
        // Under another name it is not a key, and elsewhere it is not given.
        assert_eq!(put("/m?q=agentsh-OPENAI_API_KEY", PLACE).unwrap(), "/m?q=agentsh-OPENAI_API_KEY");
        assert_eq!(put("/m?key=other", PLACE).unwrap(), "/m?key=other");
        let elsewhere = ChannelTarget { host: "evil.example", ..PLACE };
        assert!(
            put("/m?key=agentsh-OPENAI_API_KEY", elsewhere).unwrap_err().contains("may go to api.openai.com")
        );
    }

    #[test]
    fn key_of_another_account_is_refused_if_the_users_account_is_known() {
        let place = (domain::normalise("api.openai.com").unwrap(), 443);
        let keys = Keys::new(vec![(place, vec!["sk-real".to_owned()])]);
        let check = |uri: &str, headers: &[(&str, &str)], to| {
            let request = headers
                .iter()
                .fold(Request::builder().uri(uri), |all, (name, value)| all.header(*name, *value));
            keys.check(&request.body(()).unwrap(), to)
        };
        for own in [
            &[][..],
            &[("authorization", "Bearer sk-real")],
            &[("x-api-key", "sk-real"), ("x-note", "sk-other"), ("idempotency-key", "7")],
            &[("x-api-key", "sk-real"), ("cookie", "__cf_bm=a.b; _cfuvid=c"), ("cookie", "AWSALB=d")],
        ] {
            check("/v1/models?key=sk-real", own, PLACE).unwrap();
        }
        for foreign in [
            &[("authorization", "Bearer sk-other")][..],
            &[("authorization", "Bearer sk-real"), ("x-api-key", "sk-other")],
            &[("authorization", "Bearer sk-real"), ("authorization", "bearer sk-other")],
            &[("authorization", "sk-other")],
            &[("x_api_key", "sk-other")],
            &[("x-api.key", "sk-other")],
            &[("cookie", "__cf_bm=a; sessionKey=sk-other")],
            &[("cookie", "sk-other")],
        ] {
            let why = check("/v1/models", foreign, PLACE).unwrap_err();
            assert!(why.contains("another account") && !why.contains("sk-"), "{why}");
            check("/v1/models", foreign, ChannelTarget { host: "elsewhere.test", ..PLACE }).unwrap();
        }
        for query in
            ["key=sk-other", "%6bey=sk-other", "access_token=o", "API-Key=o", "%24key=o", "x_api_key=o"]
        {
            assert!(check(&format!("/v1/m?{query}"), &[], PLACE).is_err(), "{query}");
        }
    }

    #[test]
    fn model_key_is_sent_only_to_its_endpoints_and_over_tls() {
        let put = |to| {
            let mut headers = headers();
            let put = keys().put(&mut headers, to);
            assert_eq!(headers["authorization"] == "Bearer sk-real", put.is_ok());
            put
        };
        put(ChannelTarget { host: "localhost", port: 4000, is_tls: false, is_one: false }).unwrap();
        for (host, port, is_tls) in [
            ("openrouter.ai", 443, true),
            ("api.openai.com.evil.example", 443, true),
            ("api.openai.com", 8443, true),
            ("localhost", 4001, false),
        ] {
            let why = put(ChannelTarget { host, port, is_tls, is_one: false }).unwrap_err();
            assert!(why.contains("OPENAI_API_KEY may go to api.openai.com:443"), "{why}");
        }
        for to in [
            ChannelTarget { is_tls: false, ..PLACE },
            ChannelTarget { host: "gate.lan", port: 80, is_tls: false, ..PLACE },
        ] {
            assert!(put(to).unwrap_err().contains("only over TLS"));
        }
    }
}
