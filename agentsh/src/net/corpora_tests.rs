//! The corpora of the fuzz targets, as plain tests.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may stop at the first surprise")]

use crate::{net, policy};

#[path = "../../../fuzz/checks/client_hello.rs"]
mod client_hello;
#[path = "../../../fuzz/checks/dns_answer.rs"]
mod dns_answer;
#[path = "../../../fuzz/checks/http_host.rs"]
mod http_host;

fn each(target: &str, check: fn(&[u8])) {
    let place = format!("{}/../fuzz/corpus/{target}", env!("CARGO_MANIFEST_DIR"));
    let mut count = 0;
    for entry in std::fs::read_dir(place).unwrap() {
        check(&std::fs::read(entry.unwrap().path()).unwrap());
        count += 1;
    }
    assert!(count >= 8, "{target} has {count} inputs");
}

#[test]
fn client_hello_corpus() {
    each("client_hello", client_hello::check);
}

#[test]
fn dns_answer_corpus() {
    each("dns_answer", dns_answer::check);
}

#[test]
fn http_host_corpus() {
    each("http_host", http_host::check);
}
