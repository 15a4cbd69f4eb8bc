#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may stop at the first surprise")]

use super::*;
use proptest::prelude::*;

const MARK: &str = "agentsh_0011223344556677_";
const HOLDER: &str = "agentsh_0011223344556677_1";
const SECRET: &str = "ghp_RealSecret";

fn broker() -> Broker {
    let rule = |id: &str| RuleRef { id: id.to_owned(), file: "p.yaml".to_owned(), line: 3 };
    let requests = |texts: &[&str]| {
        texts.iter().map(|text| Ruled { value: RequestRule::parse(text).unwrap(), rule: rule("r") }).collect()
    };
    let credential = |host: &str, user: Option<&str>, texts: &[&str]| Credential {
        host: host.to_owned(),
        port: 443,
        placeholder: HOLDER.to_owned(),
        user: user.map(str::to_owned),
        secret: SECRET.to_owned(),
        requests: requests(texts),
        rule: rule(host),
    };
    let own = credential("git.test", None, &["GET /**", "POST /**/git-upload-pack"]);
    let named = credential("named.test", Some("ada"), &["GET /**"]);
    Broker::new(vec![own, named], MARK)
}

fn ask(host: &str, is_secret: bool, head: &str) -> Result<Option<String>, &'static str> {
    let line = head.lines().next().unwrap();
    let mut words = line.split(' ');
    let (method, target) = (words.next().unwrap().to_owned(), words.next().unwrap().to_owned());
    let request = Request { method, path: target.clone() };
    let to = RequestTarget { host, port: 443, is_secret };
    match broker().judge(head.as_bytes(), to, &request, &target) {
        Ok(None) => Ok(None),
        Ok(Some(put)) => {
            let mut whole = head.as_bytes().to_vec();
            whole.splice(put.at..put.at + put.length, put.value);
            Ok(Some(String::from_utf8(whole).unwrap()))
        }
        Err(refusal) => Err(refusal.reason.code()),
    }
}

fn get(headers: &str) -> String {
    format!("GET /a/b HTTP/1.1\r\nHost: git.test\r\n{headers}X: y\r\n\r\n")
}

fn basic(pair: &str) -> String {
    format!("Authorization: Basic {}\r\n", STANDARD.encode(pair))
}

#[test]
fn placeholders_are_replaced_in_every_form_that_tools_send() {
    for (sent, leaves) in [
        (format!("Authorization: Bearer {HOLDER}\r\n"), format!("Authorization: Bearer {SECRET}\r\n")),
        (format!("authorization:  token {HOLDER}\r\n"), format!("authorization: token {SECRET}\r\n")),
        (format!("Authorization: {HOLDER}\r\n"), format!("Authorization: {SECRET}\r\n")),
        (basic(&format!("x:{HOLDER}")), basic(&format!("x:{SECRET}"))),
        (basic(&format!("{HOLDER}:x-oauth-basic")), basic(&format!("{SECRET}:x-oauth-basic"))),
        (format!("Private-Token:{HOLDER}\r\n"), format!("Private-Token: {SECRET}\r\n")),
        (format!("X-Api-Key: {HOLDER}\r\n"), format!("X-Api-Key: {SECRET}\r\n")),
    ] {
        assert_eq!(ask("git.test", true, &get(&sent)), Ok(Some(get(&leaves))), "{sent}");
    }
    let own_name = get(&basic(&format!("ada:{SECRET}")));
    assert_eq!(ask("named.test", true, &get(&basic(&format!("x:{HOLDER}")))), Ok(Some(own_name)));
    assert_eq!(ask("git.test", true, &get("Authorization: Bearer own\r\n")), Ok(None));
    assert_eq!(ask("git.test", true, &get("")), Ok(None));
}

#[test]
fn placeholders_are_refused_outside_their_host_and_header() {
    let bearer = format!("Authorization: Bearer {HOLDER}\r\n");
    let refused =
        |host, is_secret, head: &str, code| assert_eq!(ask(host, is_secret, head), Err(code), "{head}");
    refused("other.test", true, &get(&bearer), "credential-of-another-host");
    refused("git.test", false, &get(&bearer), "placeholder-without-tls");
    refused("git.test", true, &get(&format!("{bearer}{bearer}")), "placeholder-twice");
    refused("git.test", true, &get(&format!("Authorization: Bearer own\r\n{bearer}")), "authorization-twice");
    refused("git.test", true, &get(&format!("{bearer}X-Api-Key: {HOLDER}\r\n")), "placeholder-twice");
    refused("git.test", true, &get(&format!("Cookie: a={HOLDER}\r\n")), "placeholder-misplaced");
    refused("git.test", true, &get(&format!("X-{HOLDER}: a\r\n")), "placeholder-misplaced");
    refused(
        "git.test",
        true,
        &get(&format!("Authorization: Bearer {HOLDER}, x\r\n")),
        "placeholder-misplaced",
    );
    refused("git.test", true, &get(&format!("Authorization: Digest {HOLDER}\r\n")), "placeholder-misplaced");
    refused("git.test", true, &format!("GET /{HOLDER} HTTP/1.1\r\n\r\n"), "placeholder-misplaced");
    refused("git.test", true, &format!("GET /?t={HOLDER} HTTP/1.1\r\n\r\n"), "placeholder-misplaced");
    refused("git.test", true, &get(&bearer).replace("/1.1", "/1.0"), "placeholder-not-replaced");
    refused("git.test", true, &get(&format!("{bearer}Upgrade: websocket\r\n")), "placeholder-not-replaced");
    refused("git.test", true, &get(&bearer).replace("GET", "DELETE"), "credential-not-allowed");
    let other = get(&format!("X_HTTP_Method: DELETE\r\n{bearer}"));
    refused("git.test", true, &other, "override-not-allowed");
    let push = format!("POST /a/b/git-receive-pack HTTP/1.1\r\n{bearer}\r\n");
    refused("git.test", true, &push, "credential-not-allowed");
    // An escaped placeholder is another text, and is not replaced.
    assert_eq!(ask("git.test", true, "GET /?t=agentsh%5f0011223344556677%5f1 HTTP/1.1\r\n\r\n"), Ok(None));
}

#[test]
fn debug_output_of_the_broker_shows_no_secret() {
    assert!(!format!("{:?}", broker()).contains("Secret"));
}

#[test]
fn secret_in_an_answer_of_its_host_is_found_in_any_encoding() {
    let mut watch = broker().watch_answers("git.test", 443);
    assert!(!watch.finds_in(b"hello gh") && watch.partial_match_length() == 0);
    assert!(!watch.finds_in(b"p_Rea"));
    assert_eq!(watch.partial_match_length(), 7);
    assert!(watch.finds_in(b"lSecret and more"));
    let mut encoded = broker().watch_answers("named.test", 443);
    assert!(encoded.finds_in(STANDARD.encode(format!("ada:{SECRET}")).as_bytes()));
    assert!(!broker().watch_answers("else.test", 443).finds_in(SECRET.as_bytes()));
    // Under any name, and encoded together with any other text.
    for user in ["", "a", "ab", "abc", "somebody"] {
        for text in [format!("{user}:{SECRET}"), format!("{SECRET}:{user}"), format!("{{{user}{SECRET}}}")] {
            for alphabet in [&STANDARD, &base64::engine::general_purpose::URL_SAFE] {
                let mut watch = broker().watch_answers("git.test", 443);
                assert!(watch.finds_in(alphabet.encode(&text).as_bytes()), "{text}");
            }
        }
    }
    let hex: String = SECRET.bytes().map(|byte| format!("{byte:02X}")).collect();
    assert!(broker().watch_answers("git.test", 443).finds_in(hex.as_bytes()));
    assert!(!broker().watch_answers("git.test", 443).finds_in(STANDARD.encode("nothing of it").as_bytes()));
}

proptest! {
    #[test]
    fn secret_in_an_answer_is_found_across_pieces(before in "[a-p_]{0,40}", cuts in prop::collection::vec(1_usize..9, 1..40)) {
        let text = format!("{before}{SECRET}");
        let mut watch = broker().watch_answers("git.test", 443);
        let (mut rest, mut found, mut passed) = (text.as_bytes(), false, 0);
        for cut in cuts.iter().cycle() {
            if rest.is_empty() { break; }
            let (piece, later) = rest.split_at((*cut).min(rest.len()));
            rest = later;
            found |= watch.finds_in(piece);
            if !found {
                passed = text.len() - rest.len() - watch.partial_match_length();
            }
        }
        prop_assert!(found);
        // At most a few bytes of it are passed on before it is known.
        prop_assert!(passed < before.len() + 4);
    }
}
