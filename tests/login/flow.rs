//! Logging in and out.

use std::os::unix::fs::PermissionsExt;

use url::Url;

use super::{configured, log_in, log_in_with};
use crate::support::authority::{Authority, MARK, browse};
use crate::support::{Mode, Outcome, Place};

#[test]
fn compressed_answer_of_a_provider_is_read() {
    let place = Place::new(Mode::Invoker);
    let authority = Authority::start();
    configured(&place, &authority);
    authority.state().packs = true;
    log_in(&place, &["far"]).expect_code(0);
}

#[test]
fn a_login_is_for_one_server_and_bound_to_one_browser() {
    for mode in Mode::all() {
        let place = Place::new(mode);
        let authority = Authority::start();
        configured(&place, &authority);
        let mut asked = None;
        let outcome = log_in_with(&place, &["far", "--scope", "files:write"], |address| {
            asked = Some(Url::parse(address).unwrap());
            let (status, place) = browse(address);
            assert!(status == 200 && place.starts_with("http://127.0.0.1:"), "{status} {place}");
        })
        .expect_code(0);
        assert!(outcome.stderr.contains("logged in to 'far'"), "{outcome}");
        let asked: Vec<(String, String)> = asked.unwrap().query_pairs().into_owned().collect();
        let value =
            |name: &str| asked.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str()).unwrap();
        assert_eq!((value("code_challenge_method"), value("scope")), ("S256", "files:read files:write"));
        assert_eq!(value("resource"), authority.mcp.url());
        assert!(value("state").len() >= 32, "{asked:?}");
        let traded = authority.traded();
        assert_eq!((traded.len(), &traded[0]["resource"]), (1, &authority.mcp.url()));
        // Nothing that the server was asked before holds a token.
        assert!(authority.mcp.asked().iter().all(|asked| asked.header("authorization").is_none()));

        let listed = place.listed(&["login", "--list", "--json"]);
        assert_eq!((&listed[0]["name"], &listed[0]["is_renewed"]), (&"far".into(), &true.into()));
        assert!(!serde_json::to_string(&listed).unwrap().contains(MARK), "{listed:?}");
        let events = place.events("server_login");
        assert_eq!((&events[0]["what"], &events[0]["server_id"]), (&"logged-in".into(), &"far".into()));
        assert!(!serde_json::to_string(&events).unwrap().contains(MARK), "{events:?}");
        kept_for_the_user_alone(&place);

        let outcome = Outcome::of(&mut place.agentsh(&["logout", "far"])).expect_code(0);
        assert!(outcome.stderr.contains("revoked"), "{outcome}");
        assert!(place.listed(&["login", "--list", "--json"]).is_empty());
        assert!(
            authority.server.asked().iter().any(|asked| asked.path == "/revoke" && asked.body.contains(MARK))
        );
        let outcome = Outcome::of(&mut place.agentsh(&["logout", "far"]));
        assert!(outcome.code == 2 && outcome.stderr.contains("login --list"), "{outcome}");
    }
}

/// A name that means no server is an error of the command line: the message lists the servers, and no login begins.
#[test]
fn a_name_that_is_unknown_begins_no_session() {
    for mode in Mode::all() {
        let place = Place::new(mode);
        let authority = Authority::start();
        let sessions = || {
            let outcome = Outcome::of(&mut place.agentsh(&["sessions", "--json"])).expect_code(0);
            serde_json::from_str::<Vec<serde_json::Value>>(&outcome.stdout).unwrap().len()
        };
        let told = |words: &[&str]| {
            let outcome = Outcome::of(&mut place.agentsh(words));
            assert_eq!((outcome.code, outcome.stdout.as_str()), (2, ""), "{words:?} {outcome}");
            outcome.stderr
        };
        assert!(
            told(&["login", "fra"])
                .contains("no remote server 'fra' is configured here; configured: none is;")
        );
        configured(&place, &authority);
        let add = ["profile", "add", "kept", "--url", &authority.mcp.url()];
        Outcome::of(place.agentsh(&add).stdin(std::process::Stdio::null())).expect_code(0);
        let said = told(&["login", "fra"]);
        assert!(said.contains("configured: 'far', 'kept'; a URL works too"), "{said}");
        assert!(told(&["login", "https://"]).contains("'https://' is not a URL"));
        let secret = ["login", "far", "--client-id", "c", "--client-secret-env", "NOT_THERE"];
        assert!(told(&secret).contains("the variable NOT_THERE is not set"));
        assert!(told(&["logout", "far"]).contains("no login to 'far' is stored; stored: none is;"));
        assert_eq!(sessions(), 0);
        // Its twin.
        log_in(&place, &["far"]).expect_code(0);
        assert_eq!(sessions(), 1);
        assert!(told(&["logout", "fra"]).contains("no login to 'fra' is stored; stored: 'far';"));
        assert_eq!(sessions(), 1);
        Outcome::of(&mut place.agentsh(&["logout", "far"])).expect_code(0);
        assert_eq!(sessions(), 2);
    }
}

fn kept_for_the_user_alone(place: &Place) {
    let directory = place.home.join(".local/state/agentsh/logins");
    let mode = |path: &std::path::Path| path.metadata().unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&directory), 0o700);
    let files: Vec<_> = std::fs::read_dir(&directory).unwrap().flatten().map(|entry| entry.path()).collect();
    let kept: Vec<_> = files.iter().filter(|path| path.extension().unwrap() == "json").collect();
    assert_eq!(kept.len(), 1);
    assert_eq!(mode(kept[0]), 0o600);
    assert!(std::fs::read_to_string(kept[0]).unwrap().contains(MARK));
    // A file that others can read is not used.
    std::fs::set_permissions(kept[0], PermissionsExt::from_mode(0o644)).unwrap();
    let outcome = Outcome::of(&mut place.agentsh(&["login", "--list"]));
    assert!(outcome.code != 0 && outcome.stderr.contains("chmod 600"), "{outcome}");
    std::fs::set_permissions(kept[0], PermissionsExt::from_mode(0o600)).unwrap();
}

#[test]
fn an_answer_to_another_login_is_dropped() {
    let place = Place::new(Mode::Invoker);
    let authority = Authority::start();
    let outcome = log_in_with(&place, &[&authority.mcp.url()], |address| {
        let asked = Url::parse(address).unwrap();
        let back = asked.query_pairs().find(|(name, _)| name == "redirect_uri").unwrap().1.into_owned();
        for (query, status) in
            [("?code=evil&state=evil", 400), ("?code=evil", 400), ("", 404), ("/../x", 404)]
        {
            assert_eq!(browse(&format!("{back}{query}")).0, status, "{query}");
        }
        assert!(authority.traded().is_empty());
        // As browsers do: connections that say nothing, which nobody has to wait for.
        let port = Url::parse(&back).unwrap().port().unwrap();
        let _silent: Vec<_> =
            (0..3).map(|_| std::net::TcpStream::connect(("127.0.0.1", port)).unwrap()).collect();
        let since = std::time::Instant::now();
        assert_eq!(browse(address).0, 200);
        assert!(since.elapsed() < std::time::Duration::from_secs(4));
    })
    .expect_code(0);
    assert!(outcome.stderr.contains("does not belong to this login"), "{outcome}");
    assert!(!authority.traded()[0]["code"].contains("evil"));
}

#[test]
fn browser_is_opened_if_there_is_one() {
    let place = Place::new(Mode::Invoker);
    let authority = Authority::start();
    let browser =
        place.script(place.home.join("bin/browser"), "#!/bin/sh\nprintf %s \"$1\" > \"$HOME/opened\"\n");
    let mut command = place.agentsh(&["login", &authority.mcp.url(), "--wait", "1"]);
    let outcome = Outcome::of(command.env("BROWSER", &browser));
    assert!(outcome.code != 0 && outcome.stderr.contains("within 1 s"), "{outcome}");
    let opened = std::fs::read_to_string(place.home.join("opened")).unwrap();
    assert_eq!(opened, outcome.stdout.trim());
    assert!(opened.starts_with(&authority.issuer()), "{opened}");
}

#[test]
fn a_profile_is_known_by_its_name() {
    let place = Place::new(Mode::Invoker);
    let authority = Authority::start();
    let url = authority.mcp.url();
    Outcome::of(&mut place.agentsh(&["profile", "add", "tracker", "--url", &url])).expect_code(0);
    log_in(&place, &["tracker"]).expect_code(0);
    let outcome = Outcome::of(&mut place.agentsh(&["profile", "test", "tracker"])).expect_code(0);
    assert!(outcome.stdout.contains("with 2 tools"), "{outcome}");
    assert_eq!(place.listed(&["login", "--list", "--json"])[0]["name"], "tracker");
}

#[test]
fn a_client_that_the_user_registered_is_used() {
    let place = Place::new(Mode::Invoker);
    let authority = Authority::start();
    authority.state().metadata.insert("registration_endpoint", serde_json::Value::Null);
    let url = authority.mcp.url();
    let outcome = log_in(&place, &[&url]);
    assert!(outcome.code != 0 && outcome.stderr.contains("--client-id ID"), "{outcome}");
    // A free port is taken from the system, as a user would choose one.
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    authority.state().know("mine", &format!("http://127.0.0.1:{port}/callback"));
    let outcome = log_in(&place, &[&url, "--client-id", "mine", "--port", &port.to_string()]).expect_code(0);
    assert!(outcome.stderr.contains("logged in"), "{outcome}");
    assert!(!authority.server.asked().iter().any(|asked| asked.path == "/register"));
}
