#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

use super::*;

fn read(text: &str) -> Result<Target, TargetError> {
    Target::parse(text, &Rules::default())
}

fn answer(addresses: &[&str], chain: &[&str]) -> Result<Answer, ResolveError> {
    Ok(Answer {
        addresses: addresses.iter().map(|address| address.parse().unwrap()).collect(),
        chain: chain.iter().map(|&name| name.to_owned()).collect(),
    })
}

#[test]
fn host_is_normalised_before_it_is_judged() {
    for text in ["https://0x01010101/", "https://1.1.257/", "https://01.01.01.01/", "https://%31.1.1.1/"] {
        assert_eq!(read(text).unwrap().literal_address(), Some("1.1.1.1".parse().unwrap()), "{text}");
    }
    for text in
        ["https://2130706433/", "https://0177.1/", "https://\u{2460}27.0.0.1/", "https://127\u{ff0e}1/"]
    {
        assert!(matches!(read(text), Err(TargetError::Special { .. })), "{text}");
    }
    assert_eq!(read("https://EXAMPLE.com.:443/").unwrap().name(), "example.com");
    assert!(matches!(read("https://LOCALHOST./"), Err(TargetError::SpecialName { .. })));
}

#[test]
fn url_that_parsers_read_differently_is_refused() {
    for text in [
        "https:\\\\example.com/",
        "https:///example.com/",
        "https:example.com",
        "https://exam\tple.com/",
        " https://example.com/",
        "https://example.com/\n",
        "https://a@b@example.com/",
    ] {
        assert!(matches!(read(text), Err(TargetError::Ambiguous(_))), "{text:?} {:?}", read(text));
    }
    assert!(matches!(read("https://u:p@example.com/"), Err(TargetError::Credentials)));
    assert!(matches!(read("https://1.2.3.4.5/"), Err(TargetError::NoUrl(_))));
    assert!(matches!(read("https://a..example.com/"), Err(TargetError::Name(_))));
    assert!(matches!(read("https://example.com:0/"), Err(TargetError::Port)));
    for honest in ["https://example.com/a b?q=[x]|y", "https://example.com/%zz", "https://b\u{fc}cher.com/#x"]
    {
        assert!(read(honest).is_ok(), "{honest}");
    }
}

#[test]
fn plain_http_is_allowed_on_this_machine_only() {
    assert!(matches!(read("http://127.0.0.1/"), Err(TargetError::Scheme(_))));
    let rules = Rules { loopback: true, ..Rules::default() };
    for text in ["http://127.0.0.1:1/", "http://[::1]/", "https://127.0.0.1/", "http://localhost/"] {
        assert!(Target::parse(text, &rules).is_ok(), "{text}");
    }
    for text in ["http://1.1.1.1/", "https://10.0.0.1/", "https://169.254.169.254/", "https://x.internal/"] {
        assert!(Target::parse(text, &rules).is_err(), "{text}");
    }
    let localhost = Target::parse("http://localhost/", &rules).unwrap();
    assert!(localhost.addresses(answer(&["127.0.0.1", "::1"], &[]), &rules).is_ok());
    assert!(localhost.addresses(answer(&["1.1.1.1"], &[]), &rules).is_err());
    let anywhere = Rules::user_configured();
    assert!(Target::parse("https://10.0.0.1/", &anywhere).is_ok());
    let far = Target::parse("http://far.example/", &anywhere).unwrap();
    assert!(matches!(far.addresses(answer(&["10.0.0.1"], &[]), &anywhere), Err(TargetError::PlainText(_))));
}

#[test]
fn one_special_address_refuses_the_whole_answer() {
    let rules = Rules::default();
    let target = read("https://a.example.com/").unwrap();
    let judged = |addresses: &[&str], chain: &[&str]| target.addresses(answer(addresses, chain), &rules);
    assert_eq!(judged(&["1.1.1.1", "2606:4700::1"], &[]).unwrap().len(), 2);
    assert!(matches!(judged(&["1.1.1.1", "10.0.0.1"], &[]), Err(TargetError::LeadsTo { .. })));
    assert!(matches!(judged(&[], &[]), Err(TargetError::Unresolved { .. })));
    assert!(matches!(judged(&["1.1.1.1"], &["b.example.com", "a.example.com"]), Err(TargetError::Loop(_))));
    assert!(matches!(judged(&["1.1.1.1"], &["db.internal"]), Err(TargetError::Alias { .. })));
    let names: Vec<String> = (0..9).map(|number| format!("c{number}.example.com")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    assert!(judged(&["1.1.1.1"], &names[..8]).is_ok());
    assert!(matches!(judged(&["1.1.1.1"], &names), Err(TargetError::Chain { count: 9, .. })));
    let failed = target.addresses(Err(ResolveError::Failed("SERVFAIL".to_owned())), &rules);
    assert!(matches!(failed, Err(TargetError::Unresolved { .. })));
}

#[test]
fn networks_that_policy_names_are_allowed_with_their_names() {
    let rules = Rules { permitted: vec!["10.0.0.0/8".parse().unwrap()], ..Rules::default() };
    let target = Target::parse("https://mcp.corp/", &rules).unwrap();
    assert!(target.addresses(answer(&["10.1.2.3"], &["srv.internal"]), &rules).is_ok());
    assert!(target.addresses(answer(&["192.168.1.1"], &[]), &rules).is_err());
}
