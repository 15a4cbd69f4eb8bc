//! Signing in to the pages at an OpenID provider: who gets which role, and who is refused.

use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::json;
use url::Url;

use super::provider::{CLIENT, Provider, SECRET};
use super::{Server, pages};
use crate::support::authority::browse;
use crate::support::{Mode, Outcome, Place};

/// A provider, and a server's configuration for it.
pub(super) struct Told {
    pub provider: Provider,
    listen: String,
    words: Vec<String>,
}

pub(super) fn told(more: &[&str]) -> Told {
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let url = format!("http://127.0.0.1:{port}");
    let provider = Provider::start(&format!("{url}/sign-in/callback"));
    let mut words: Vec<String> =
        ["--oidc-issuer", &provider.issuer(), "--oidc-client", CLIENT, "--public-url", &url]
            .map(str::to_owned)
            .into();
    words.extend(more.iter().map(|word| (*word).to_owned()));
    Told { provider, listen: format!("127.0.0.1:{port}"), words }
}

impl Told {
    pub fn server<'a>(&self, at: &'a Place, database: &str) -> Server<'a> {
        at.set("AGENTSH_FLEET_OIDC_SECRET", SECRET);
        let words: Vec<&str> = self.words.iter().map(String::as_str).collect();
        Server::start_at(at, database, &self.listen, &words)
    }
}

fn cookies(answer: &str) -> Vec<&str> {
    answer.lines().filter_map(|line| line.strip_prefix("set-cookie: ")).collect()
}

fn pair(line: &str) -> String {
    line.split(';').next().unwrap().to_owned()
}

/// A browser begins: where it is sent, and what it keeps.
fn begin(server: &Server<'_>) -> (String, String) {
    let (status, answer) = server.raw("GET", "/sign-in/provider", &[("Sec-Fetch-Site", "same-origin")], b"");
    assert_eq!(status, 303, "{answer}");
    let location = answer.lines().find_map(|line| line.strip_prefix("location: ")).unwrap().to_owned();
    let line = cookies(&answer)[0];
    assert!(
        line.contains("HttpOnly") && line.contains("SameSite=Lax") && line.contains("Max-Age=600"),
        "{line}"
    );
    (location, pair(line))
}

/// Goes to the provider, whose user agrees, and comes back to this path.
fn consent(server: &Server<'_>, location: &str) -> String {
    let url = Url::parse(location).unwrap();
    let target = &url[url::Position::BeforePath..url::Position::AfterQuery];
    let mut stream = std::net::TcpStream::connect(("127.0.0.1", url.port().unwrap())).unwrap();
    use std::io::{Read as _, Write as _};
    write!(stream, "GET {target} HTTP/1.1\r\nHost: 127.0.0.1:{}\r\n\r\n", url.port().unwrap()).unwrap();
    let mut answer = Vec::new();
    let mut piece = [0; 4096];
    while !answer.windows(4).any(|end| end == b"\r\n\r\n") {
        let count = stream.read(&mut piece).unwrap();
        assert!(count > 0, "no answer");
        answer.extend_from_slice(&piece[..count]);
    }
    let answer = String::from_utf8(answer).unwrap();
    let back = answer.lines().find_map(|line| line.strip_prefix("Location: ")).expect(&answer);
    back.strip_prefix(&server.url()).expect(back).to_owned()
}

fn come_back(server: &Server<'_>, path: &str, cookie: &str) -> (u16, String) {
    server.raw("GET", path, &[("Cookie", cookie), ("Sec-Fetch-Site", "cross-site")], b"")
}

/// From the first page to the last answer.
pub(super) fn sign_in(server: &Server<'_>) -> (u16, String) {
    let (location, cookie) = begin(server);
    let path = consent(server, &location);
    come_back(server, &path, &cookie)
}

/// The cookie that opens the pages; None: nobody is signed in.
pub(super) fn opened(answer: &str) -> Option<String> {
    cookies(answer).into_iter().map(pair).find(|pair| pair.starts_with("agentsh-fleet=agf_in_"))
}

#[test]
fn oidc_provider_identifies_the_user() {
    let run = |at: &Place, database: &str| {
        let told = told(&[]);
        let server = told.server(at, database);
        let (_, way) = server.raw("GET", "/sign-in", &[], b"");
        assert!(
            way.contains("href=\"/sign-in/provider\"") && way.contains("Sign in with 127.0.0.1"),
            "{way}"
        );
        let (status, answer) = sign_in(&server);
        assert_eq!(status, 200, "{answer}");
        let cookie = opened(&answer).expect(&answer);
        let line = cookies(&answer).into_iter().find(|line| line.starts_with("agentsh-fleet=")).unwrap();
        assert!(line.contains("HttpOnly") && line.contains("SameSite=Strict"), "{line}");
        assert!(cookies(&answer).iter().any(|line| line.starts_with("agentsh-sign-in=;")), "{answer}");
        let (status, now) = pages::page(&server, "/", &cookie);
        assert!(
            status == 200
                && now.contains("Signed in as oidc:ada [17 at http://127.0.0.1")
                && now.contains("(approver)"),
            "{now}"
        );
        assert_eq!(pages::page(&server, "/people", &cookie).0, 403, "an approver is not an admin");
        // Which role, and that it is the highest of several.
        for (roles, role) in [(json!("viewer"), "viewer"), (json!(["viewer", "admin", "approver"]), "admin")]
        {
            told.provider.says().claims.insert("roles".to_owned(), roles);
            let (_, answer) = sign_in(&server);
            let (_, now) = pages::page(&server, "/", &opened(&answer).expect(&answer));
            assert!(
                now.contains("Signed in as oidc:ada [17 at ") && now.contains(&format!("({role})")),
                "{now}"
            );
        }
        // An admin sees who it is at the provider, and ends what was begun.
        let admin = pages::sign_in(&server, "admin", "root");
        let (_, people) = pages::page(&server, "/people", &admin);
        assert!(people.contains("17 at http://127.0.0.1") && people.contains("valid until"), "{people}");
        let form = pages::form(&people);
        let headers = [("Cookie", admin.as_str())];
        let (status, answer) =
            pages::post(&server, "/people/oidc:ada/revoke", &headers, &format!("token={form}"));
        assert_eq!(status, 200, "{answer}");
        assert_eq!(pages::page(&server, "/", &cookie).0, 401);
        // Signing out ends it, also for a copy of the cookie.
        told.provider.repents();
        let (_, answer) = sign_in(&server);
        let cookie = opened(&answer).unwrap();
        let form = pages::form(&pages::page(&server, "/", &cookie).1);
        let (status, _) = pages::post(&server, "/sign-out", &[("Cookie", &cookie)], &format!("token={form}"));
        assert_eq!((status, pages::page(&server, "/", &cookie).0), (200, 401));
        // No token may have such a name.
        let words = ["fleet", "token", "--role", "viewer", "--name", "oidc:ada", "--database", database];
        Outcome::of(&mut at.agentsh(&words)).expect_code(125);
    };
    super::on_both(run);
}

#[test]
fn identity_token_with_wrong_claims_is_turned_away() {
    let at = Place::new(Mode::Invoker);
    let told = told(&[]);
    let server = told.server(&at, at.home.join("fleet.db").to_str().unwrap());
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    for (name, value, status, why) in [
        ("nonce", json!("0".repeat(64)), 401, "nonce"),
        ("nonce", json!(null), 401, "nonce"),
        ("aud", json!("other-client"), 401, "InvalidAudience"),
        ("aud", json!([CLIENT, "other"]), 401, "azp"),
        ("azp", json!("other"), 401, "azp"),
        ("iss", json!("http://127.0.0.1:1"), 401, "InvalidIssuer"),
        ("exp", json!(now - 120), 401, "ExpiredSignature"),
        ("exp", json!(null), 401, "exp"),
        ("nbf", json!(now + 120), 401, "ImmatureSignature"),
        ("iat", json!(now + 120), 401, "iat"),
        ("iat", json!(now - 3600), 401, "iat"),
        ("sub", json!(""), 401, "sub"),
        ("roles", json!(null), 403, "gives you no role"),
        ("roles", json!(["staff", "Admin"]), 403, "gives you no role"),
        ("roles", json!({"admin": true}), 403, "gives you no role"),
    ] {
        told.provider.says().claims.insert(name.to_owned(), value.clone());
        let (found, answer) = sign_in(&server);
        assert!(found == status && answer.contains(why), "{name} {value}: {found} {answer}");
        assert!(opened(&answer).is_none(), "{name} {value}: {answer}");
        told.provider.repents();
    }
    // Clocks differ by less than a minute.
    told.provider.says().claims.insert("exp".to_owned(), json!(now - 30));
    told.provider.says().claims.insert("iat".to_owned(), json!(now + 30));
    assert_eq!(sign_in(&server).0, 200);
    told.provider.repents();

    told.provider.says().forges = true;
    let (status, answer) = sign_in(&server);
    assert!(status == 401 && opened(&answer).is_none(), "{answer}");
    told.provider.repents();
    told.provider.says().without_token = true;
    assert!(sign_in(&server).1.contains("no id token"));
    told.provider.repents();
    told.provider.says().issuer = Some("http://127.0.0.1:1".to_owned());
    let (status, answer) = sign_in(&server);
    assert!(status == 401 && answer.contains("it was ignored"), "{answer}");
    told.provider.repents();
    told.provider.says().error = Some("access_denied");
    assert!(sign_in(&server).1.contains("access_denied"));
    told.provider.repents();

    // An answer to a login that another browser began, or that was never begun; and a replayed one.
    let trades = told.provider.asked("/token");
    let (location, cookie) = begin(&server);
    let path = consent(&server, &location);
    let (_, other) = begin(&server);
    for foreign in [other.as_str(), "", "agentsh-sign-in=", "agentsh-sign-in=a.b.c"] {
        let (status, answer) = come_back(&server, &path, foreign);
        assert!(status == 401 && opened(&answer).is_none(), "{foreign}: {answer}");
    }
    assert_eq!(told.provider.asked("/token"), trades, "no code was used");
    assert_eq!(come_back(&server, &path, &cookie).0, 200);
    let (status, answer) = come_back(&server, &path, &cookie);
    assert!(status == 401 && opened(&answer).is_none(), "{answer}");
    let (_, cookie) = begin(&server);
    for query in ["", "?code=x", "?state=x&code=y", "?error=x"] {
        assert_eq!(come_back(&server, &format!("/sign-in/callback{query}"), &cookie).0, 401, "{query}");
    }
    // What is public is not a secret, and no other host's page gets in.
    let (_, first) = browse(&location);
    assert!(first.starts_with(&server.url()), "{first}");
}

#[test]
fn invalid_oidc_options_are_reported_and_an_absent_provider_blocks_nobody_else() {
    let at = Place::new(Mode::Invoker);
    let database = at.home.join("fleet.db");
    let base = ["fleet", "serve", "--listen", "127.0.0.1:0", "--database", database.to_str().unwrap()];
    let refused = |words: &[&str], why: &str| {
        let all: Vec<&str> = base.iter().chain(words).copied().collect();
        let outcome = Outcome::of(&mut at.agentsh(&all)).expect_code(2);
        assert!(outcome.stderr.contains(why), "{words:?}: {outcome}");
    };
    let issuer = ["--oidc-issuer", "https://login.example", "--oidc-client", "x"];
    refused(&issuer, "--public-url");
    let with = |more: &[&'static str]| -> Vec<&'static str> { issuer.iter().chain(more).copied().collect() };
    refused(&with(&["--public-url", "http://fleet.example"]), "is not https");
    refused(&with(&["--public-url", "https://fleet.example/deep"]), "not an origin");
    refused(&with(&["--public-url", "https://fleet.example", "--oidc-role", "root=x"]), "admin=VALUE");
    let plain =
        ["--oidc-issuer", "http://192.0.2.1", "--oidc-client", "x", "--public-url", "https://fleet.example"];
    refused(&plain, "only to this machine");

    let mut told =
        told(&["--oidc-claim", "realm.groups", "--oidc-role", "viewer=all", "--oidc-name", "email"]);
    told.words.extend(["--oidc-scope".to_owned(), "groups".to_owned()]);
    let server = told.server(&at, database.to_str().unwrap());
    told.provider.says().metadata.insert("issuer".to_owned(), json!("https://evil.example"));
    let (status, answer) = server.raw("GET", "/sign-in/provider", &[], b"");
    assert!(status == 503 && answer.contains("is not valid"), "{answer}");
    // Tokens open the pages as before.
    pages::sign_in(&server, "viewer", "vera");
    told.provider.repents();
    let (_, answer) = sign_in(&server);
    assert!(answer.contains("realm.groups"), "the usual claim does not count: {answer}");
    told.provider.says().claims.insert("realm".to_owned(), json!({"groups": ["all"]}));
    told.provider.says().claims.insert("email".to_owned(), json!("ada@example.com<b>"));
    let (location, cookie) = begin(&server);
    assert!(location.contains("scope=openid+profile+groups"), "{location}");
    let path = consent(&server, &location);
    let (_, answer) = come_back(&server, &path, &cookie);
    let (_, now) = pages::page(&server, "/", &opened(&answer).expect(&answer));
    let now = now.replace("<wbr>", "");
    assert!(now.contains("oidc:ada@example.com&lt;b&gt; [17 at http") && now.contains("] (viewer)"), "{now}");
    // A server without a provider has no such way.
    drop(server);
    let server = Server::start(&at, database.to_str().unwrap(), &[]);
    assert_eq!(server.raw("GET", "/sign-in/provider", &[], b"").0, 404);
    assert!(!server.raw("GET", "/sign-in", &[], b"").1.contains("/sign-in/provider"));
}
