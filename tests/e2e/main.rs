//! Real agents, real servers and the official clients, under the real binary.
//!
//! `cargo xtask test e2e` installs them and starts this with `AGENTSH_E2E_DIR` set, in a network namespace that
//! has nothing but loopback when started by root. Without that variable every case is skipped.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::disallowed_methods,
    reason = "a test may stop at the first surprise, its report is its output, and it starts agentsh as people do"
)]

mod accounts;
mod agents;
mod browser;
mod clients;
mod day;
mod fleet;
mod hostile;
mod inside;
mod libraries;
mod model;
mod newcomer;
mod others;
mod pages;
mod place;
mod pushes;
mod receipts;
mod registry;
mod remote;
mod runner;
#[path = "../support/mod.rs"]
#[allow(dead_code, unused_imports, reason = "the suite needs more of it")]
mod support;
mod transports;

use std::process::ExitCode;

use place::Starter;
use runner::Case;
use support::{authority, http_server};

type Test = (&'static str, fn(Starter));

/// Agents that are started where they can be had.
const OTHERS: [Test; 3] =
    [("aider", others::aider_reads), ("copilot", others::copilot_reads), ("qwen", others::qwen_reads)];

fn main() -> ExitCode {
    let mut cases = Vec::new();
    for starter in [Starter::Root, Starter::User] {
        let mut add_unless = |skipped, name: &str, body: fn(Starter)| {
            let name = format!("{name}_as_{}", starter.word());
            cases.push(Case { name, skipped, body: Box::new(move || body(starter)) });
        };
        let needs_names = starter.unavailable().or_else(model::tls::unavailable);
        add_unless(needs_names, "claude_trusts_the_session", agents::claude_trusts_the_session);
        add_unless(needs_names, "codex_trusts_the_session", agents::codex_trusts_the_session);
        add_unless(needs_names, "claude_with_an_account", accounts::claude);
        add_unless(needs_names, "codex_speaks_http2_with_its_model", agents::codex_speaks_http2);
        add_unless(needs_names, "http2_is_spoken_where_the_model_does", agents::http2_is_spoken);
        let mut add = |name: &str, body| add_unless(starter.unavailable(), name, body);
        add("claude_reads_a_note_through_the_filesystem_server", agents::claude_reads);
        add("claude_beside_a_mute_server", agents::claude_beside_a_mute_server);
        add("codex_beside_a_mute_server", agents::codex_beside_a_mute_server);
        add("claude_does_not_see_a_denied_tool", agents::claude_denied);
        add("claude_does_not_get_a_tampered_server", agents::claude_tampered);
        add("claude_exit_status_is_passed_through", agents::claude_fails);
        add("codex_reads_a_note_through_the_filesystem_server", agents::codex_reads);
        add("codex_does_not_see_a_denied_tool", agents::codex_denied);
        add("claude_pushes_without_the_token", pushes::claude);
        add("codex_pushes_without_the_token", pushes::codex);
        add("claude_uses_a_server_behind_a_url_with_a_header", remote::with_a_header);
        add("claude_uses_a_server_behind_a_url_with_a_login", remote::with_a_login);
        add("codex_uses_a_server_behind_a_url_with_a_header", remote::codex_with_a_header);
        add("codex_uses_a_server_behind_a_url_with_a_login", remote::codex_with_a_login);
        for (agent, body) in OTHERS.iter().filter(|_| starter == Starter::User) {
            let skipped = starter.unavailable().or_else(|| others::missing(agent));
            add_unless(skipped, &format!("{agent}_reads_a_note"), *body);
        }
        let mut add = |name: &str, body| add_unless(starter.unavailable(), name, body);
        if starter == Starter::User {
            add("gemini_reads_a_note_through_the_filesystem_server", others::gemini_reads);
            if cfg!(target_arch = "x86_64") {
                add("opencode_reads_a_note_through_the_filesystem_server", others::opencode_reads);
            }
        }
    }
    let started = if place::is_root() { Starter::Root } else { Starter::User };
    cases.push(Case {
        name: "pages_in_a_browser_while_claude_waits".to_owned(),
        skipped: started.unavailable().or_else(pages::unavailable),
        body: Box::new(move || pages::look(started)),
    });
    cases.push(Case {
        name: "official_clients_in_a_browser_use_the_gateway".to_owned(),
        skipped: started.unavailable().or_else(pages::unavailable),
        body: Box::new(move || browser::uses_the_gateway(started)),
    });
    cases.push(Case {
        name: "claude_logs_in_at_the_official_authorization_server".to_owned(),
        skipped: started.unavailable(),
        body: Box::new(move || remote::with_the_official_server(started)),
    });
    cases.push(Case {
        name: "telemetry_is_read_by_the_official_packages".to_owned(),
        skipped: started.unavailable(),
        body: Box::new(move || fleet::telemetry(started)),
    });
    cases.push(Case {
        name: "pages_of_a_fleet_are_opened_by_an_openid_provider".to_owned(),
        skipped: started.unavailable(),
        body: Box::new(move || fleet::signs_in(started)),
    });
    cases.push(Case {
        name: "receipts_are_verified_by_in_toto_and_sigstore".to_owned(),
        skipped: started.unavailable(),
        body: Box::new(move || receipts::are_verified_by_others(started)),
    });
    cases.push(Case {
        name: "registry_serves_the_client_of_kiji".to_owned(),
        skipped: started.unavailable(),
        body: Box::new(move || registry::serves_the_client_of_kiji(started)),
    });
    for client in clients::CLIENTS {
        for server in clients::SERVERS {
            let name = format!("{}_sees_no_difference_with_{}", client.name, server.name);
            cases.push(Case {
                name,
                skipped: started.unavailable(),
                body: Box::new(move || clients::same(client, server, started)),
            });
            if ["filesystem", "memory", "everything"].contains(&server.name) {
                cases.push(Case {
                    name: format!("{}_loses_nothing_through_the_proxy_with_{}", client.name, server.name),
                    skipped: started.unavailable(),
                    body: Box::new(move || clients::same_through_the_proxy(client, server, started)),
                });
            }
        }
    }
    cases.push(Case {
        name: "a_day_of_ordinary_work_is_neither_refused_nor_full_of_alarms".to_owned(),
        skipped: started.unavailable(),
        body: Box::new(move || day::nothing_is_refused(started)),
    });
    for client in clients::CLIENTS {
        for (transport, way) in transports::CASES {
            let (from, by) = (transport.word(), way.word());
            cases.push(Case {
                name: format!("{}_sees_the_same_of_a_server_by_{from}_through_{by}", client.name),
                skipped: started.unavailable(),
                body: Box::new(move || transports::same(client, (transport, way), started)),
            });
        }
    }
    for client in clients::CLIENTS {
        for lie in hostile::LIES {
            cases.push(Case {
                name: format!(
                    "{}_receives_nothing_blocked_of_a_server_that_lies_by_{}",
                    client.name, lie.name
                ),
                skipped: started.unavailable(),
                body: Box::new(move || hostile::lied_to(client, lie, started)),
            });
        }
        cases.push(Case {
            name: format!("{}_receives_nothing_blocked_of_a_server_that_lies_by_shadow", client.name),
            skipped: started.unavailable(),
            body: Box::new(move || hostile::shadowed(client, started)),
        });
    }
    for library in &libraries::LIBRARIES {
        cases.push(Case {
            name: format!("{}_libraries_accept_what_was_rewritten", library.name),
            skipped: started.unavailable(),
            body: Box::new(move || libraries::accepts(library, started)),
        });
    }
    for (name, walk) in newcomer::WALKS {
        cases.push(Case {
            name: format!("newcomer_with_{name}"),
            skipped: newcomer::unavailable(),
            body: Box::new(walk),
        });
    }
    if started.unavailable().is_none() && newcomer::unavailable().is_some() {
        clients::prepare();
        libraries::prepare();
    }
    runner::run(cases)
}
