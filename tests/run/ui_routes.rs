//! Every route of `agentsh ui`, as its source lists them: from a page of another site, under a name that was rebound,
//! without the cookie, with an expired one, and with forms that do not come from its pages.

use std::time::Duration;

use super::ui::{ASKING, agent};
use crate::support::browser::{Got, Ui};
use crate::support::routes::{Route, of_match};
use crate::support::{Mode, Place, within};

const ROUTER: &str = include_str!("../../agentsh/src/cli/ui/site.rs");

#[test]
fn ui_routes_refuse_other_sites_and_wrong_cookies() {
    let place = Place::new(Mode::Invoker);
    place.user_policy(ASKING);
    let mut child = agent(&place, "call fixture add '{\"a\": 2, \"b\": 40}'");
    let ui = Ui::open(&place);
    let waits = within(Duration::from_secs(30), || ui.get("/approvals").body.contains("name=\"bound\""));
    assert!(waits, "nothing waits");
    let page = ui.get("/approvals");
    let id = page.body.split("action=\"/approvals/").nth(1).unwrap().split('"').next().unwrap();
    let (token, bound) = (page.field("token"), page.field("bound"));
    let form = |token: &str| format!("token={token}&bound={bound}&answer=once");
    // Of a page that has ended: its cookie and the token of its forms.
    let stale = Ui::open(&place);
    let old_token = stale.get("/approvals").field("token").to_owned();
    let (name, _) = ui.cookie.split_once('=').unwrap();
    let old_cookie = format!("{name}={}", stale.cookie.split_once('=').unwrap().1);
    drop(stale);

    let routes = of_match(ROUTER, id);
    let unknown = Route { method: "GET".to_owned(), path: "/nothing".to_owned() };
    assert!(routes.iter().filter(|route| route.changes()).count() > 0, "{routes:?}");
    let own = format!("http://{}", ui.address);
    for route in routes.iter().chain([&unknown]) {
        let with = |headers: &[(&str, &str)], body: &str| ui.raw(&route.method, &route.path, headers, body);
        let body = if route.changes() { form(token) } else { String::new() };
        let refused = |got: Got, status: u16, why: &str| {
            assert_eq!(got.status, status, "{route:?} {why}: {}", got.body)
        };
        for host in ["rebound.example", "rebound.example:80", "127.0.0.1.example", "[::1]:80"] {
            refused(with(&[("Host", host), ("Origin", &own)], &body), 403, host);
            refused(with(&[("Host", host), ("Origin", &format!("http://{host}"))], &body), 403, host);
        }
        refused(with(&[("Host", "")], &body), 403, "no host");
        refused(with(&[("Cookie", ""), ("Origin", &own)], &body), 401, "no cookie");
        refused(with(&[("Cookie", &old_cookie), ("Origin", &own)], &body), 401, "another cookie");
        // The stream of news has no end to wait for.
        if route.path == "/events" {
            continue;
        }
        let foreign = with(&[("Origin", "http://evil.example"), ("Sec-Fetch-Site", "cross-site")], &body);
        assert!(!foreign.head.contains("access-control-"), "{route:?}: {}", foreign.head);
        if !route.changes() {
            continue;
        }
        refused(foreign, 403, "another site");
        for origin in ["http://evil.example", "null", "http://127.0.0.1:1", "https://127.0.0.1", &ui.address]
        {
            refused(with(&[("Origin", origin)], &body), 403, origin);
        }
        for site in ["cross-site", "same-site"] {
            refused(with(&[("Origin", &own), ("Sec-Fetch-Site", site)], &body), 403, site);
        }
        for (body, why) in [
            (form(&old_token), "the token of another start"),
            (form(""), "an empty token"),
            ("answer=once".to_owned(), "no token"),
        ] {
            refused(with(&[("Origin", &own)], &body), 403, why);
        }
        // A body that a page of another site may send without asking.
        for kind in ["text/plain", "application/json", "multipart/form-data; boundary=x"] {
            let got = with(&[("Origin", &own), ("Content-Type", kind)], &body);
            assert!((400..500).contains(&got.status), "{route:?} {kind}: {}", got.status);
        }
    }
    // Nothing of this answered the question, and the page itself does.
    assert!(child.try_wait().unwrap().is_none(), "the call went on");
    let own_form = ui.post(&format!("/approvals/{id}"), &form(token));
    assert_eq!(own_form.status, 200, "{}", own_form.body);
    let output = child.wait_with_output().unwrap();
    assert_eq!(
        String::from_utf8_lossy(&output.stdout),
        "42\n",
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}
