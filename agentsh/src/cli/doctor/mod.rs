//! `agentsh doctor`: really tries every layer in test sandboxes that are started like every run. A layer counts as
//! enforced only if the attack was made and refused.

mod kernel;
mod sandboxes;

use std::io::Write;

use clap::Args;

use super::fail;
use crate::session::probe::ProbeError;
use agentsh_terminal::exit;
use agentsh_trials::doctor::judge::{self, Host};
use agentsh_trials::doctor::layer::{self, Layer, State};
use agentsh_trials::doctor::stage::Stage;
use agentsh_trials::doctor::{Probed, host, probe};

/// The width if standard output is not a terminal. Programs read `--json`.
const COLUMNS: u16 = 100;

const NO_SANDBOX: &str = "cannot start a sandbox";
/// The hidden verb that runs inside.
pub const PROBE_VERB: &str = "__probe";

#[derive(Debug, Args)]
pub struct DoctorArgs {
    /// The rows as a JSON array
    #[arg(long)]
    json: bool,
}

pub async fn run(args: DoctorArgs) -> u8 {
    let examined = tokio::select! {
        examined = examine() => examined,
        // Dropping ends what was started.
        _ = tokio::signal::ctrl_c() => Err("interrupted".to_owned()),
    };
    let layers = match examined {
        Ok(layers) => layers,
        Err(message) => return fail(&message),
    };
    let text = if args.json {
        match layer::to_json(&layers) {
            Ok(text) => text,
            Err(error) => return fail(&error.to_string()),
        }
    } else {
        layer::render(&layers, agentsh_terminal::output::terminal_width().unwrap_or(COLUMNS))
    };
    let mut out = anstream::stdout();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Ok(()) => {}
        // The reader of the output has closed it.
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => {}
        Err(error) => return fail(&format!("cannot write the answer: {error}")),
    }
    // A state that cannot be changed is no reason for a script to stop.
    let is_open = |layer: &Layer| layer.state.is_wanting() && layer.can_be_helped();
    if layers.iter().any(is_open) { exit::NO } else { 0 }
}

/// Inside a throw-away sandbox, or the supervisor that is to be killed.
#[must_use]
pub fn run_inside() -> u8 {
    let words: Vec<String> = std::env::args().skip(2).collect();
    match words.as_slice() {
        [verb, facts] if verb == sandboxes::SUPERVISE => match serde_json::from_str(facts) {
            Ok(facts) => super::on_one_thread(sandboxes::supervise(facts)),
            Err(_) => exit::FAILED,
        },
        [facts, names @ ..] => match serde_json::from_str(facts) {
            Ok(facts) => probe::main(&facts, names),
            Err(_) => exit::FAILED,
        },
        [] => exit::FAILED,
    }
}

async fn examine() -> Result<Vec<Layer>, String> {
    let stage = Stage::set().map_err(|error| format!("cannot prepare a place for the attempts: {error}"))?;
    let context = sandboxes::context(stage.directory()).map_err(|error| error.to_string())?;
    // As a session does; undone at the end.
    let _settled = context.hierarchies.move_into_child(&format!("agentsh-{}", std::process::id()));
    let throw_away = stage.directory().join("state");
    let (ordinary, memory, pids, cpu, tampered, death, store) = tokio::join!(
        sandboxes::probe_ordinary_sandbox(&stage, &context),
        sandboxes::limited(&stage, &context, "memory"),
        sandboxes::limited(&stage, &context, "pids"),
        sandboxes::limited(&stage, &context, "cpu"),
        sandboxes::probe_tampered_program(&stage, &context),
        sandboxes::parent_death(&context, &stage.facts),
        host::event_store(&context.state, &throw_away),
    );
    let agents = host::agents(&context).await;
    let seen = stage.observe();
    let mut layers = match &ordinary {
        Ok(probed) => judge::ordinary_layers(&judge::read(&probed.output), &probed.enforcement, &seen),
        Err(error) => not_started(error, &seen),
    };
    if ordinary.is_ok() {
        layers.push(limit("memory-limit", memory, judge::memory));
        layers.push(limit("process-limit", pids, judge::pids));
        layers.push(limit("cpu-limit", cpu, judge::cpu));
        layers.push(pinning_layer(&ordinary, tampered, &seen));
        layers
            .push(death.unwrap_or_else(|error| untried_layer("parent-death").with_reason(error.to_string())));
    } else {
        let rest = ["memory-limit", "process-limit", "cpu-limit", "pinned-execution", "parent-death"];
        layers.extend(rest.map(|layer| untried_layer(layer).with_reason(NO_SANDBOX)));
    }
    layers.push(store);
    layers.extend(host::below_windows());
    layers.extend(agents);
    layers.push(kernel::examine(&stage).await);
    drop(context);
    Ok(layers)
}

fn limit(layer: &str, probed: Result<Probed, ProbeError>, judge: impl Fn(&Probed) -> Layer) -> Layer {
    match probed {
        Ok(probed) => judge(&probed),
        Err(error) => untried_layer(layer).with_reason(error.to_string()),
    }
}

fn pinning_layer(
    ordinary: &Result<Probed, ProbeError>,
    tampered: std::io::Result<Option<String>>,
    seen: &Host,
) -> Layer {
    match (ordinary, tampered) {
        (Ok(probed), Ok(tampered)) => {
            judge::pinning_layer(&judge::read(&probed.output), tampered.as_deref(), seen)
        }
        (Err(error), _) => untried_layer("pinned-execution").with_reason(error.to_string()),
        (_, Err(error)) => untried_layer("pinned-execution").with_reason(error.to_string()),
    }
}

/// No sandbox at all: the row whose step failed says why, the others that they were not tried.
fn not_started(error: &ProbeError, seen: &Host) -> Vec<Layer> {
    let message = error.to_string();
    let at_birth = ["clone3", "uid_map", "gid_map", "setgroups"].iter().any(|step| message.contains(step));
    let culprit = if at_birth { "user-namespace" } else { "mount-tree" };
    let mut layers = judge::ordinary_layers(&judge::Answers::new(), &[], seen);
    for layer in &mut layers {
        if layer.state == State::NotNeeded {
            continue;
        }
        let blank = untried_layer(&layer.layer);
        let why = if layer.layer == culprit { message.clone() } else { NO_SANDBOX.to_owned() };
        let remedy = if layer.layer == culprit { host::explain(&message) } else { String::new() };
        *layer = Layer { asked: std::mem::take(&mut layer.asked), ..blank }.with_reason(why).remedy(remedy);
    }
    layers
}

fn untried_layer(layer: &str) -> Layer {
    Layer::new(layer, "", "not tried", State::Absent)
}
