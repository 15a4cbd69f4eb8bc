use std::ffi::OsString;

use proptest::prelude::*;

use super::super::node_line::{self, Program};
use super::super::semver::{Range, Version};
use super::super::{PinError, npx_line, python_line, uv_line};

fn words(line: &str) -> Vec<OsString> {
    line.split_whitespace().map(OsString::from).collect()
}

#[test]
fn ranges_match_as_npm_does() {
    let table = [
        ("1.2.3", "1.2.3", true),
        ("=1.2.3", "1.2.4", false),
        ("v1.2.3", "1.2.3+build", true),
        ("1", "1.9.9", true),
        ("1.x", "2.0.0", false),
        ("*", "0.0.1", true),
        ("", "3.0.0", true),
        ("^1.2.3", "1.9.0", true),
        ("^1.2.3", "2.0.0", false),
        ("^0.2.3", "0.2.9", true),
        ("^0.2.3", "0.3.0", false),
        ("^0.0.3", "0.0.4", false),
        ("^0", "0.9.0", true),
        ("^0.0", "0.1.0", false),
        ("~1.2.3", "1.2.9", true),
        ("~1.2", "1.3.0", false),
        ("~1", "1.9.0", true),
        (">=1.2 <2", "1.5.0", true),
        (">= 1.2.0 < 1.5.0", "1.5.0", false),
        (">1.2", "1.2.9", false),
        (">1.2", "1.3.0", true),
        ("<=1.2", "1.2.9", true),
        ("<=1.2", "1.3.0", false),
        ("1.2 - 1.4", "1.4.9", true),
        ("1.2.0 - 1.4.0", "1.4.1", false),
        ("1.0.0 || 2.0.0", "2.0.0", true),
        ("^1.0.0", "1.1.0-beta.1", false),
        ("^1.1.0-beta.1", "1.1.0-beta.2", true),
        ("^1.1.0-beta.1", "1.1.0", true),
        ("^1.0.0", "2.0.0-rc.1", false),
        ("1.1.0-beta.10", "1.1.0-beta.10", true),
    ];
    for (range, version, expected) in table {
        let matches = Range::parse(range).unwrap().matches(&Version::parse(version).unwrap());
        assert_eq!(matches, expected, "{range} {version}");
    }
    for tag in ["latest", "next", "1.2.3.4", "a.b", ">", "1.-", "99999999999999999999"] {
        assert_eq!(Range::parse(tag), None, "{tag}");
    }
    let order =
        ["1.0.0-1", "1.0.0-alpha", "1.0.0-alpha.1", "1.0.0-beta.2", "1.0.0-beta.11", "1.0.0", "1.0.1"];
    for pair in order.windows(2) {
        assert!(Version::parse(pair[0]) < Version::parse(pair[1]), "{pair:?}");
    }
}

#[test]
fn entry_file_is_the_first_word_that_is_no_option() {
    let entry = |line: &str| node_line::parse(&words(line)).unwrap().program;
    let file = || Program::Entry("x.js".into());
    assert_eq!(entry("x.js -e code"), file());
    assert_eq!(entry("--title name x.js"), file());
    assert_eq!(entry("-C dev --conditions=prod -r ./a --inspect=1 x.js y"), file());
    assert_eq!(entry("--env_file .env x.js"), file());
    assert_eq!(entry("-- x.js"), file());
    assert_eq!(entry("-e code x.js"), Program::Inline("code".into()));
    assert_eq!(entry("--eval=code"), Program::Inline("code".into()));
    assert_eq!(entry("-p -e code x"), Program::Inline("code".into()));
    assert_eq!(entry("--no-warnings"), Program::Stdin);
    assert_eq!(entry("- x.js"), Program::Stdin);
    assert!(matches!(node_line::parse(&words("--require")), Err(PinError::Unsupported { .. })));
}

#[test]
fn python_flags_may_be_combined_in_one_word() {
    use python_line::Program;
    let parse = |line: &str| python_line::parse(&words(line)).unwrap();
    assert_eq!(parse("-Im pkg.mod a").program, Program::Module("pkg.mod".into()));
    assert_eq!(parse("-mpkg").program, Program::Module("pkg".into()));
    assert_eq!(parse("-W error -X dev -uB x.py -m y").program, Program::Script("x.py".into()));
    assert_eq!(parse("-Werror x.py").program, Program::Script("x.py".into()));
    assert_eq!(parse("-ic code x").program, Program::Inline("code".into()));
    assert_eq!(parse("-").program, Program::Stdin);
    assert_eq!(parse("-- x.py").program, Program::Script("x.py".into()));
    let line = parse("-sEP x.py");
    assert!(line.safe_path && line.no_user_site && line.no_environment);
    assert!(python_line::parse(&words("-um")).is_err());
}

#[test]
fn package_specs_are_split_into_name_and_version() {
    let spec = |text: &str| npx_line::Spec::parse(text).unwrap();
    assert_eq!((spec("@a/b@1").name.as_str(), spec("@a/b@1").wanted.as_deref()), ("@a/b", Some("1")));
    assert_eq!((spec("@a/b").name.as_str(), spec("@a/b").wanted), ("@a/b", None));
    assert_eq!((spec("b@latest").name.as_str(), spec("b@latest").wanted.as_deref()), ("b", Some("latest")));
    for bad in ["", "@", "@a", "@a/", "@a/../b", "..", "a b", "a\0"] {
        assert!(npx_line::Spec::parse(bad).is_err(), "{bad:?}");
    }
    assert!(npx_line::parse("npm", &words("exec server --flag")).is_err(), "npm takes the flag for itself");
    assert!(npx_line::parse("npm", &words("install x")).unwrap().is_none());

    let python = |text: &str, version: &str| uv_line::Spec::parse(text).unwrap().satisfied_by(version);
    assert!(python("a==1.*", "1.2") && python("a~=1.4.2", "1.4.9") && !python("a~=1.4.2", "1.5"));
    assert!(python("a[x]>=1,<2", "1.9") && !python("a>=1,<2", "2.0") && python("a@latest", "9"));
    for bad in ["", "-a", "./dir", "a?1"] {
        assert!(uv_line::Spec::parse(bad).is_err(), "{bad:?}");
    }
}

proptest! {
    #[test]
    fn command_line_parsers_take_any_words_without_a_panic(line in proptest::collection::vec("[-=a-zA-Z@/.:^~<>|*0-9 ]{0,12}", 0..8)) {
        let line: Vec<OsString> = line.iter().map(OsString::from).collect();
        let _ = node_line::parse(&line);
        let _ = python_line::parse(&line);
        for launcher in ["npx", "npm", "pnpm", "yarn", "bun"] {
            let _ = npx_line::parse(launcher, &line);
        }
        for word in &line {
            let text = word.to_str().unwrap();
            let _ = uv_line::Spec::parse(text);
            if let (Some(range), Some(version)) = (Range::parse(text), Version::parse("1.2.3")) {
                let _ = range.matches(&version);
            }
        }
    }

    #[test]
    fn node_command_line_keeps_every_word(line in proptest::collection::vec("(-r|-e|--import|--title|-[a-z]|[a-z]{1,4})", 0..8)) {
        let line: Vec<OsString> = line.iter().map(OsString::from).collect();
        if let Ok(parsed) = node_line::parse(&line) {
            let entry = match parsed.program {
                Program::Entry(entry) => vec![entry],
                _ => Vec::new(),
            };
            let again: Vec<OsString> = parsed.flags.into_iter().chain(entry).chain(parsed.rest).collect();
            prop_assert_eq!(again, line);
        }
    }
}
