//! Servers and authorization servers that lie. In every case the user's code and tokens stay where they are.

use serde_json::{Value, json};

use super::{log_in, log_in_with};
use crate::support::authority::{Authority, MARK, browse};
use crate::support::http_server::{HttpServer, Reply};
use crate::support::{Mode, Outcome, Place};

#[track_caller]
fn fails(authority: &Authority, place: &Place, part: &str) -> Outcome {
    let outcome = log_in(place, &[&authority.mcp.url()]);
    assert_eq!(outcome.code, 125, "{part}: {outcome}");
    assert!(outcome.stderr.contains(part), "{part}: {outcome}");
    assert!(place.listed(&["login", "--list", "--json"]).is_empty());
    outcome
}

#[test]
fn authorization_server_with_false_metadata_is_refused() {
    for (name, value, part) in [
        ("issuer", json!("https://login.example.com"), "`issuer` is 'https://login.example.com'"),
        ("code_challenge_methods_supported", json!(["plain"]), "PKCE"),
        ("response_types_supported", json!(["token"]), "authorization code flow"),
        ("token_endpoint", Value::Null, "no `token_endpoint`"),
        ("token_endpoint", json!("https://169.254.169.254/token"), "its token endpoint is refused"),
        ("token_endpoint", json!("http://example.com/token"), "its token endpoint is refused"),
        ("authorization_endpoint", json!("javascript:alert(1)"), "its authorization endpoint is refused"),
        ("authorization_endpoint", json!("https://10.0.0.1/"), "its authorization endpoint is refused"),
        ("registration_endpoint", json!("file:///etc/passwd"), "its registration endpoint is refused"),
        ("issuer", json!({"a": 1}), "its field `issuer` has the wrong type"),
        ("issuer", Value::Null, "no `issuer`"),
        ("scopes_supported", json!("files"), "its field `scopes_supported` has the wrong type"),
        ("code_challenge_methods_supported", json!("S256"), "its field `code_challenge_methods_supported`"),
    ] {
        let (place, authority) = (Place::new(Mode::Invoker), Authority::start());
        authority.state().metadata.insert(name, value);
        let outcome = fails(&authority, &place, part);
        assert_eq!(outcome.stdout, "", "nobody is sent there");
        assert!(authority.traded().is_empty());
        let events = place.events("server_login");
        assert!(
            events[0]["what"] == "refused" && events[0]["detail"].as_str().unwrap().contains(part),
            "{events:?}"
        );
    }
}

#[test]
fn callback_with_another_issuer_is_refused() {
    let (place, authority) = (Place::new(Mode::Invoker), Authority::start());
    authority.state().issuer_said = Some("https://evil.example".to_owned());
    fails(&authority, &place, "is not from http://127.0.0.1");
    assert!(authority.traded().is_empty(), "the code was used");
}

#[test]
fn server_that_describes_another_resource_is_refused() {
    let (place, authority, other) = (Place::new(Mode::Invoker), Authority::start(), Authority::start());
    // The description of another server: a token for that would be worth something there.
    let about = format!("http://127.0.0.1:{}/.well-known/oauth-protected-resource/mcp", other.mcp.port);
    authority.state().resource_metadata = Some(about.clone());
    fails(&authority, &place, "is not this server");
    assert!(other.server.asked().is_empty() && authority.server.asked().is_empty());
    // It may be at another address, as long as it is about this server.
    other.state().about_resource.insert("resource", json!(authority.mcp.url()));
    other.state().about_resource.insert("authorization_servers", json!([authority.issuer()]));
    log_in(&place, &[&authority.mcp.url()]).expect_code(0);
    // And not where agentsh does not go.
    for elsewhere in ["https://169.254.169.254/latest", "http://example.com/about", "file:///etc/passwd"] {
        let place = Place::new(Mode::Invoker);
        authority.state().resource_metadata = Some(elsewhere.to_owned());
        fails(&authority, &place, "the server's metadata is refused");
    }
}

#[test]
fn invalid_tokens_are_refused() {
    for (name, value, part) in [
        ("token_type", json!("mac"), "not a bearer token"),
        ("access_token", json!("a\r\nX-Evil: 1"), "not a single ASCII word"),
        ("access_token", json!(""), "not a single ASCII word"),
        ("access_token", json!(7), "no `access_token`"),
        ("token_type", json!(7), "`token_type`"),
        ("refresh_token", json!({}), "`refresh_token`"),
        ("expires_in", json!("soon"), "`expires_in`"),
        ("expires_in", json!(-1), "`expires_in`"),
        ("scope", json!([1]), "`scope`"),
        ("access_token", json!("x".repeat(20_000)), "not a single ASCII word"),
    ] {
        let (place, authority) = (Place::new(Mode::Invoker), Authority::start());
        authority.state().tokens.insert(name, value);
        fails(&authority, &place, part);
    }
}

/// Spellings that other clients accept too.
#[test]
fn unusually_spelled_tokens_are_accepted() {
    for (name, value) in [
        ("expires_in", json!("3600")),
        ("expires_in", json!(3600.0)),
        ("expires_in", Value::Null),
        ("scope", json!(["files:read", "files:write"])),
        ("token_type", Value::Null),
        ("token_type", json!("bearer")),
    ] {
        let (place, authority) = (Place::new(Mode::Invoker), Authority::start());
        authority.state().tokens.insert(name, value);
        log_in(&place, &[&authority.mcp.url()]).expect_code(0);
    }
}

#[test]
fn login_answers_that_redirect_or_never_end_are_refused() {
    let (place, authority) = (Place::new(Mode::Invoker), Authority::start());
    let elsewhere = HttpServer::start(|_| Reply::json(json!({"access_token": "x", "token_type": "Bearer"})));
    let to = format!("http://127.0.0.1:{}/token", elsewhere.port);
    TO.set(to).unwrap();
    static TO: std::sync::OnceLock<String> = std::sync::OnceLock::new();
    authority.state().token_reply = Some(|| Reply::status(307).with("Location", TO.get().unwrap()));
    fails(&authority, &place, "did not issue a token");
    assert!(elsewhere.asked().is_empty(), "the code went to another origin");
    authority.state().token_reply = Some(|| Reply::json(format!("[{}", " ".repeat(400_000))));
    fails(&authority, &place, "more than 262144 bytes");
    authority.state().token_reply = Some(|| Reply::status(503));
    fails(&authority, &place, "HTTP 503");
}

#[test]
fn login_refused_in_the_browser_is_reported() {
    let (place, authority) = (Place::new(Mode::Invoker), Authority::start());
    let outcome = log_in_with(&place, &[&authority.mcp.url()], |address| {
        let url = url::Url::parse(address).unwrap();
        let value = |name: &str| url.query_pairs().find(|(key, _)| key == name).unwrap().1.into_owned();
        let mut back = url::Url::parse(&value("redirect_uri")).unwrap();
        back.query_pairs_mut()
            .append_pair("error", "access_denied\u{1b}[31m")
            .append_pair("state", &value("state"))
            .append_pair("iss", &authority.issuer());
        assert_eq!(browse(back.as_str()).0, 400);
    });
    assert!(outcome.code == 125 && outcome.stderr.contains("refused the login: access_denied"), "{outcome}");
    assert!(!outcome.stderr.contains('\u{1b}') && !outcome.stderr.contains(MARK));
}

#[test]
fn server_without_a_login_is_reported() {
    let place = Place::new(Mode::Invoker);
    let server = HttpServer::start(|_| Reply::status(404));
    let outcome = log_in(&place, &[&server.url()]);
    assert!(outcome.code == 125 && outcome.stderr.contains("names no authorization server"), "{outcome}");
}
