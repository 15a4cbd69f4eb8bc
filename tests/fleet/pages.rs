//! The pages that `agentsh fleet serve` shows: who gets in, what a role may, and who is turned away.

use super::{Server, forward, on_both, session};
use crate::support::{Mode, Outcome, Place};

const FORM: (&str, &str) = ("Content-Type", "application/x-www-form-urlencoded");

/// Sends a form of a page of this server.
pub(super) fn post(server: &Server<'_>, path: &str, more: &[(&str, &str)], body: &str) -> (u16, String) {
    let origin = server.url();
    let mut headers = vec![FORM, ("Origin", origin.as_str())];
    headers.extend(more);
    server.raw("POST", path, &headers, body.as_bytes())
}

/// Signs in with a token; gives the line of the cookie.
pub(super) fn sign_in(server: &Server<'_>, role: &str, name: &str) -> String {
    let token = server.token(role, name);
    let (status, answer) = post(server, "/sign-in", &[], &format!("credential={token}"));
    assert_eq!(status, 200, "{answer}");
    let line = answer.lines().find_map(|line| line.strip_prefix("set-cookie: ")).expect(&answer);
    for word in ["HttpOnly", "SameSite=Strict", "Path=/"] {
        assert!(line.contains(word), "{line}");
    }
    // It was used.
    assert_eq!(post(server, "/sign-in", &[], &format!("credential={token}")).0, 401);
    line.split(';').next().unwrap().to_owned()
}

pub(super) fn page(server: &Server<'_>, path: &str, cookie: &str) -> (u16, String) {
    server.raw("GET", path, &[("Cookie", cookie)], b"")
}

/// What the forms of a page send back.
pub(super) fn form(page: &str) -> String {
    let (_, rest) = page.split_once("name=\"token\" value=\"").expect(page);
    rest.split('"').next().unwrap().to_owned()
}

#[test]
fn fleet_pages_need_a_sign_in() {
    on_both(|at, database| {
        let server = Server::start(at, database, &[]);
        let host = Place::new(Mode::Invoker);
        session(&host, 2);
        server.enrol(&host, "laptop<b>");
        forward(&host, &[]).expect_code(0);
        let first = ["mcp", "events", "--limit", "1", "--json"];
        let id = host.listed(&first)[0]["session"].as_str().unwrap().to_owned();

        let paths = ["/", "/hosts", "/sessions", "/servers", "/people", "/server/fixture"];
        for path in paths.iter().copied().chain([format!("/session/{id}").as_str()]) {
            for cookie in ["", "agentsh-fleet=", "agentsh-fleet=agf_00", "other=1"] {
                let (status, answer) = page(&server, path, cookie);
                assert!(status == 401 && answer.contains("/sign-in"), "{path} {cookie}: {answer}");
                assert!(!answer.contains("laptop") && !answer.contains("fixture"), "{answer}");
            }
        }
        for wrong in ["", "credential=", "credential=agf_once_00", "credential=agf_00", "credential=a%0d%0ab"]
        {
            assert_eq!(post(&server, "/sign-in", &[], wrong).0, 401, "{wrong}");
        }
        // A token of a host is no way in.
        let token = server.token("host", "x");
        assert_eq!(post(&server, "/sign-in", &[], &format!("credential={token}")).0, 401);

        let viewer = sign_in(&server, "viewer", "vera");
        let (status, now) = page(&server, "/", &viewer);
        assert!(status == 200 && now.contains("crash") && now.contains("refused"), "{now}");
        assert!(now.contains("content-security-policy: default-src 'none'"), "{now}");
        assert!(now.contains("Signed in as vera (viewer)"), "{now}");
        let (_, hosts) = page(&server, "/hosts", &viewer);
        assert!(hosts.contains("laptop&lt;b&gt;") && !hosts.contains("<b>"), "{hosts}");
        assert!(!hosts.contains("/revoke"), "a viewer has nothing to press: {hosts}");
        assert!(page(&server, "/sessions", &viewer).1.contains(&format!("/session/{id}")));
        let (status, whole) = page(&server, &format!("/session/{id}"), &viewer);
        assert!(
            status == 200 && whole.contains("the hash chain is intact") && whole.contains("echo"),
            "{whole}"
        );
        assert!(page(&server, "/servers", &viewer).1.contains("/server/fixture"));
        assert!(page(&server, "/server/fixture", &viewer).1.contains("crash"));
        assert_eq!(page(&server, "/server/none", &viewer).0, 404);
        assert_eq!(page(&server, "/session/ffff", &viewer).0, 404);
        assert_eq!(page(&server, "/people", &viewer).0, 403, "people are for admins");
    });
}

#[test]
fn roles_without_the_right_change_nothing() {
    let at = Place::new(Mode::Invoker);
    let server = Server::start(&at, at.home.join("fleet.db").to_str().unwrap(), &[]);
    let host = Place::new(Mode::Invoker);
    session(&host, 1);
    server.enrol(&host, "laptop");
    super::arrival::tamper(
        &host,
        "UPDATE events SET body = replace(body, 'number 0', 'number 7') WHERE type = 'mcp_tool_called'",
    );
    forward(&host, &[]).expect_code(1);
    server.login(&at, "viewer");
    let id = super::hosts(&at).0[0]["id"].as_str().unwrap().to_owned();
    let state = || super::hosts(&at).0[0]["state"].as_str().unwrap().to_owned();
    let accept = format!("/hosts/{id}/accept");

    let (viewer, approver) = (sign_in(&server, "viewer", "vera"), sign_in(&server, "approver", "abe"));
    let theirs = |cookie: &str| form(&page(&server, "/hosts", cookie).1);
    let send = |path: &str, cookie: &str, token: &str, origin: &str| {
        let headers = [FORM, ("Cookie", cookie), ("Origin", origin)];
        server.raw("POST", path, &headers, format!("token={token}").as_bytes()).0
    };
    let here = server.url();
    // A viewer, by a form of his own page.
    assert_eq!(send(&accept, &viewer, &theirs(&viewer), &here), 403);
    // A page of another site, with the approver's cookie and even his form.
    assert_eq!(send(&accept, &approver, &theirs(&approver), "http://evil.example"), 403);
    assert_eq!(send(&accept, &approver, &theirs(&approver), "null"), 403);
    let crossed = [FORM, ("Cookie", approver.as_str()), ("Sec-Fetch-Site", "cross-site")];
    let body = format!("token={}", theirs(&approver));
    assert_eq!(server.raw("POST", &accept, &crossed, body.as_bytes()).0, 403);
    // No form, that of another one, no cookie.
    assert_eq!(send(&accept, &approver, "", &here), 403);
    assert_eq!(send(&accept, &approver, &theirs(&viewer), &here), 403);
    assert_eq!(send(&accept, "", &theirs(&approver), &here), 401);
    assert_eq!(server.raw("GET", &accept, &[("Cookie", &approver)], b"").0, 405);
    assert_eq!(state(), "refused");
    // An approver revokes nothing.
    assert_eq!(send(&format!("/hosts/{id}/revoke"), &approver, &theirs(&approver), &here), 403);
    assert_eq!(send(&accept, &approver, &theirs(&approver), &here), 200);
    assert_eq!(state(), "active");
    assert!(page(&server, "/hosts", &viewer).1.contains("accepted by abe"));

    let admin = sign_in(&server, "admin", "ada");
    assert_eq!(send("/people/abe/revoke", &admin, &theirs(&admin), &here), 200);
    assert_eq!(page(&server, "/", &approver).0, 401, "what was revoked opens nothing");
    assert!(page(&server, "/people", &admin).1.contains("revoked"));
    assert_eq!(send(&format!("/hosts/{id}/revoke"), &admin, &theirs(&admin), &here), 200);
    assert_eq!(state(), "revoked");
    let (status, out) =
        post(&server, "/sign-out", &[("Cookie", &admin)], &format!("token={}", theirs(&admin)));
    assert!(status == 200 && out.contains("Max-Age=0"), "{out}");
    // The same list on the command line, for admins.
    let list = |at: &Place| Outcome::of(&mut at.agentsh(&["fleet", "hosts", "--credentials"]));
    assert!(list(&at).expect_code(1).stderr.contains("the role admin"));
    let other = Place::new(Mode::Invoker);
    server.login(&other, "admin");
    let listed = list(&other).expect_code(0).stdout;
    assert!(listed.contains("abe") && listed.contains("vera") && !listed.contains("agf_"), "{listed}");
}
