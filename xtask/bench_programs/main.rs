//! What `cargo xtask bench` measures with: one program, so that one link is enough.
//!
//! `launch ROUNDS TRUE PROJECT` times sandboxes, `echo [TOOLS]` is a server that does nothing, `client` an agent that
//! calls it on command. `network ROUNDS` times connects in a policed control group and outside of it,
//! `beside AGENTSH CONFIG` times small things while a long argument is searched,
//! `fleet URL HOSTS RATE SECONDS` is many hosts, `fleet-fill EVENTS DAYS` writes what they sent before as a script of psql, `relay AGENTSH ROUNDS` connections out of a sandbox,
//! `model AGENTSH ROUNDS` answers of a model to an agent.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "a measurement may stop at the first surprise, its answers are its output, and it starts what it measures"
)]

mod beside;
mod client;
mod echo;
mod fleet;
mod fleet_fill;
mod launch;
mod model;
mod network;
mod ordered;
mod relay;
mod texts;

fn main() -> std::process::ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match words.first().map(String::as_str) {
        // Sandboxes re-execute the program that makes them.
        Some(agentsh_sandbox::zygote::VERB) => return agentsh_sandbox::zygote::main().into(),
        Some("launch") => launch::main(&words[1..]),
        Some("network") => network::main(&words[1..]),
        Some("echo") => echo::main(words.get(1).and_then(|tools| tools.parse().ok()).unwrap_or(0)),
        Some("fleet") => fleet::main(&words[1..]),
        Some("fleet-fill") => fleet_fill::main(&words[1..]),
        Some("beside") => beside::main(&words[1..]),
        Some("beside-client") => beside::client(&words[1..]),
        Some("relay") => relay::main(&words[1..]),
        Some("relay-client") => relay::client(&words[1..]),
        // An adapter may put arguments of its own in front.
        _ if words.iter().any(|word| word == model::CLIENT) => model::client(),
        Some("model") => model::main(&words[1..]),
        Some("model-proxy") => model::proxy(&words[1..]),
        Some("client") => client::main(&words[1..]),
        other => panic!("unknown task {other:?}"),
    }
    std::process::ExitCode::SUCCESS
}
