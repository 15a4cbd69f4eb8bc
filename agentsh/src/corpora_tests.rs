//! The corpora of the fuzz targets, as plain tests.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may stop at the first surprise")]

use agentsh_base::{json, types};
use {
    agentsh_dlp as dlp, agentsh_gateway as gateway, agentsh_guard as guard, agentsh_llm as llm,
    agentsh_login as login, agentsh_mcp as mcp, agentsh_net as net, agentsh_policy as policy,
    agentsh_registry as registry, agentsh_remote as remote, agentsh_sandbox as sandbox, agentsh_scan as scan,
    agentsh_secrets as secrets, agentsh_store as store,
};

macro_rules! targets {
    ($($target:ident $path:literal,)*) => {$(
        #[path = $path]
        mod $target;
    )*

    /// Targets that `fuzz/Cargo.toml` must name too.
    const TARGETS: &[&str] = &[$(stringify!($target)),*];

    mod corpus {
        $(#[test]
        fn $target() {
            super::each(stringify!($target), super::$target::check);
        })*
    }};
}

targets! {
    bearer_token "../../fuzz/checks/bearer_token.rs",
    canonical_forms "../../fuzz/checks/canonical_forms.rs",
    client_hello "../../fuzz/checks/client_hello.rs",
    decoded_views "../../fuzz/checks/decoded_views.rs",
    destinations "../../fuzz/checks/destinations.rs",
    dns_answer "../../fuzz/checks/dns_answer.rs",
    fold "../../fuzz/checks/fold.rs",
    forwarded_results "../../fuzz/checks/forwarded_results.rs",
    git_config "../../fuzz/checks/git_config.rs",
    http_host "../../fuzz/checks/http_host.rs",
    journal_redaction "../../fuzz/checks/journal_redaction.rs",
    login_answers "../../fuzz/checks/login_answers.rs",
    llm_streams "../../fuzz/checks/llm_streams.rs",
    map_abi "../../fuzz/checks/map_abi.rs",
    protocol_eras "../../fuzz/checks/protocol_eras.rs",
    repeated_headers "../../fuzz/checks/repeated_headers.rs",
    scan_text "../../fuzz/checks/scan_text.rs",
    scan_views "../../fuzz/checks/scan_views.rs",
    server_sent_events "../../fuzz/checks/server_sent_events.rs",
    taint_records "../../fuzz/checks/taint_records.rs",
}

fn fuzz() -> std::path::PathBuf {
    std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz")
}

fn each(target: &str, check: fn(&[u8])) {
    let mut count = 0;
    for entry in std::fs::read_dir(fuzz().join("corpus").join(target)).unwrap() {
        let path = entry.unwrap().path();
        // The name of the input that a check does not like.
        let shown = path.clone();
        let input = std::fs::read(path).unwrap();
        std::panic::catch_unwind(|| check(&input))
            .unwrap_or_else(|_| panic!("{} does not hold", shown.display()));
        count += 1;
    }
    assert!(count >= 8, "{target} has {count} inputs");
}

#[test]
fn every_target_is_one_that_can_be_fuzzed() {
    let manifest = std::fs::read_to_string(fuzz().join("Cargo.toml")).unwrap();
    let built = manifest.matches("[[bin]]").count();
    assert_eq!(built, TARGETS.len());
    for target in TARGETS {
        assert!(manifest.contains(&format!("path = \"targets/{target}.rs\"")), "{target}");
        assert!(fuzz().join("targets").join(format!("{target}.rs")).exists(), "{target}");
    }
}
