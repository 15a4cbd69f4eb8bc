//! An approver is recorded by the subject, which the identity provider never gives to another person, next to the current name.

use std::time::Duration;

use serde_json::json;

use super::approvals::{OFFERS, POLICY, agent, question, undecided};
use super::oidc::{opened, sign_in, told};
use super::{Server, on_both, pages};
use crate::support::asking::ended;
use crate::support::{Mode, Outcome, Peer, Place, within};

/// Signs in a user of the provider, and returns the cookie that opens the pages.
fn somebody(server: &Server<'_>) -> String {
    let (_, answer) = sign_in(server);
    opened(&answer).expect(&answer)
}

#[test]
#[ignore = "takes long"]
fn decision_names_a_subject_that_its_author_cannot_choose() {
    on_both(|at, database| {
        let told = told(&["--registry", "closed"]);
        let server = told.server(at, database);
        server.login(at, "viewer");
        let id = format!("17 at {}", told.provider.issuer());
        let ada = somebody(&server);
        // Long words may be broken.
        let read = |cookie: &str| pages::page(&server, "/", cookie).1.replace("<wbr>", "");
        let now = read(&ada);
        assert!(now.contains(&format!("Signed in as oidc:ada [{id}] (approver)")), "{now}");

        let host = Place::new(Mode::Invoker);
        host.user_policy(POLICY);
        server.enrol(&host, "laptop");
        let child = agent(&host, "call fixture add '{\"a\": 2, \"b\": 40}'");
        let asked = question(at, &server);
        let path = format!("/approvals/{}", asked["id"].as_str().unwrap());
        let form = pages::form(&pages::page(&server, "/approvals", &ada).1);
        let body = format!("token={form}&bound={}&answer=once", asked["bound"].as_str().unwrap());
        assert_eq!(pages::post(&server, &path, &[("Cookie", &ada)], &body).0, 200);
        let (out, err) = ended(child);
        assert!(out.starts_with("42\n"), "{out}\n{err}");
        let decided = host.events("approval_decided");
        assert_eq!(decided[0]["by"], format!("fleet: oidc:ada [{id}]"), "{decided:?}");

        // The same person under a name that looks like somebody else's record.
        let other = "root [1 at https://login.example]";
        told.provider.says().claims.insert("preferred_username".to_owned(), json!(other));
        let renamed = somebody(&server);
        let on_record = format!("oidc:root (1 at https://login.example) [{id}]");
        let now = read(&renamed);
        assert!(now.contains(&format!("Signed in as {on_record}")), "{now}");
        // Registry decisions name the subject too: the sign-in replaces the token's credential.
        let file = at.home.join(".local/state/agentsh/fleet/login.json");
        let mut login: serde_json::Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
        login["credential"] = json!(renamed.strip_prefix("agentsh-fleet=").unwrap());
        std::fs::write(&file, login.to_string()).unwrap();
        host.user_policy(
            "version: 1\ninterface: {registry: fleet, mode: approval, wait: 60s}\nsandbox: {mcp: {version_pinning: {on_change: allow}}}\n",
        );
        let program = host.script(host.home.join("server"), OFFERS);
        host.write(host.project.join("says"), "Reads.");
        let mut peer = Peer::start(host.agentsh(&["mcp", "run", "--id", "s", "--"]).arg(&program));
        peer.shake_hands();
        let listing = peer.ask("tools/list", json!({}));
        assert!(within(Duration::from_secs(30), || undecided(at).is_some()), "{}", peer.errors());
        let number = undecided(at).unwrap();
        let words = ["registry", "approvals", "approve", &number, "--registry", "fleet"];
        Outcome::of(&mut at.agentsh(&words)).expect_code(0);
        assert_eq!(peer.answer(&listing)["result"]["tools"].as_array().map_or(0, Vec::len), 1);
        peer.finish();
        let log = Outcome::of(&mut at.agentsh(&["registry", "log", "--registry", "fleet"])).expect_code(0);
        assert!(log.stdout.contains(&on_record), "{log}");

        // Another person of that name stays signed in when the first one is signed out, under whatever name.
        told.provider.says().claims.insert("sub".to_owned(), json!("18"));
        told.provider.says().claims.insert("preferred_username".to_owned(), json!("ada"));
        let namesake = somebody(&server);
        let admin = pages::sign_in(&server, "admin", "ann");
        let (_, people) = pages::page(&server, "/people", &admin);
        let encoded = "action=\"/people/oidc%3Aada%20%5B17%20at%20";
        let (_, rest) = people.split_once(encoded).expect(&people);
        let action = format!("{}{}", &encoded["action=\"".len()..], rest.split('"').next().unwrap());
        let body = format!("token={}", pages::form(&people));
        assert_eq!(pages::post(&server, &action, &[("Cookie", &admin)], &body).0, 200);
        for (cookie, status) in [(&ada, 401), (&renamed, 401), (&namesake, 200)] {
            assert_eq!(pages::page(&server, "/", cookie).0, status, "{cookie}");
        }
    });
}
