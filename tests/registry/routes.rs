//! Every route of the registry, as its router lists them: under a name that was rebound, from a page of another site,
//! without an operator's token, and with one that is no longer valid.

use super::server::Registry;
use crate::support::routes::of_router;
use crate::support::{Mode, Place};

const ROUTERS: [&str; 2] = [
    include_str!("../../agentsh/crates/server/src/registry/routes.rs"),
    include_str!("../../agentsh/crates/server/src/registry/pages.rs"),
];
/// Routes that any program of this machine may use on an open registry.
const OPEN: [&str; 3] = ["/servers", "/servers/", "/approvals"];

#[test]
fn no_route_of_the_registry_changes_anything_for_another_site_or_without_a_token() {
    let place = Place::new(Mode::Invoker);
    let (before, stale) = {
        let earlier = Registry::start(&place, &[]);
        let token = earlier.token();
        let body = format!(r#"{{"name":"wx","hash":"{}","interface":[]}}"#, super::server::EMPTY);
        assert_eq!(
            sent(&earlier, "POST", "/servers", &[("Authorization", &format!("Bearer {token}"))], &body).0,
            201
        );
        let log = earlier.get("/log").1;
        (log, token)
    };
    // The file of operators is replaced: their old tokens are invalid.
    std::fs::remove_file(place.home.join("operators")).unwrap();
    for is_open in [false, true] {
        let words: &[&str] = if is_open { &["--open"] } else { &[] };
        let registry = Registry::start(&place, words);
        let token = format!("Bearer {}", registry.token());
        let (stale, own) = (format!("Bearer {stale}"), format!("http://{}", registry.address));
        let routes: Vec<_> = ROUTERS.iter().flat_map(|router| of_router(router, "1")).collect();
        assert!(routes.iter().filter(|route| route.changes()).count() > 4, "{routes:?}");
        for route in &routes {
            let body = if route.changes() { "{}" } else { "" };
            let with = |headers: &[(&str, &str)]| sent(&registry, &route.method, &route.path, headers, body);
            for host in ["rebound.example", "rebound.example:80", "127.0.0.1.example"] {
                let (status, text) = with(&[("Host", host), ("Authorization", &token)]);
                assert_eq!(status, 403, "{route:?} {host}: {text}");
            }
            let (status, foreign) = with(&[("Origin", "http://evil.example"), ("Authorization", &token)]);
            assert!(!foreign.to_lowercase().contains("access-control-"), "{route:?}: {foreign}");
            if !route.changes() {
                continue;
            }
            assert_eq!(status, 403, "{route:?}: {foreign}");
            for origin in ["null", "http://127.0.0.1:1", "https://evil.example", &registry.address] {
                assert_eq!(
                    with(&[("Origin", origin), ("Authorization", &token)]).0,
                    403,
                    "{route:?} {origin}"
                );
            }
            for site in ["cross-site", "same-site"] {
                let headers = [("Sec-Fetch-Site", site), ("Origin", own.as_str()), ("Authorization", &token)];
                assert_eq!(with(&headers).0, 403, "{route:?} {site}");
            }
            // A redirection changes nothing, and an open registry takes registrations and questions of this machine.
            if route.path != "/servers/" {
                assert_eq!(with(&[("Authorization", &stale)]).0, 401, "{route:?} with a token of before");
                assert_eq!(with(&[("Authorization", "Bearer ")]).0, 401, "{route:?}");
                let without = with(&[]).0;
                let is_open_here = is_open && OPEN.contains(&route.path.as_str());
                assert_eq!(without == 401, !is_open_here, "{route:?} without a token: {without}");
                // None of them accepts a body that a form of another site can send without a preflight.
                for kind in
                    ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"]
                {
                    assert_eq!(
                        with(&[("Content-Type", kind), ("Authorization", &token)]).0,
                        422,
                        "{route:?} {kind}"
                    );
                }
            }
            // The same request from the operator's own page is accepted.
            let heard =
                with(&[("Authorization", &token), ("Origin", &own), ("Sec-Fetch-Site", "same-origin")]).0;
            assert!(![401, 403].contains(&heard), "{route:?}: {heard}");
        }
        assert_eq!(registry.get("/log").1, before, "nothing was changed");
    }
}

fn sent(
    registry: &Registry<'_>,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> (u16, String) {
    let typed = headers.iter().any(|(name, _)| *name == "Content-Type");
    let json = [("Content-Type", "application/json")];
    let headers: Vec<_> = headers.iter().chain(json.iter().filter(|_| !typed)).copied().collect();
    registry.text(method, path, &headers, body)
}
