//! The eBPF backend of the network: loaded, attached to a cgroup of our own, and tested with connections.

use std::os::fd::AsFd;

use crate::session::probe::{self, Probe};
use agentsh_net::ebpf::{self, Loaded};

use super::sandboxes;
use agentsh_trials::doctor::judge;
use agentsh_trials::doctor::layer::{Layer, State};
use agentsh_trials::doctor::stage::Stage;

const LAYER: &str = "network-ebpf";
const LAYER_REQUEST: &str = "connections refused in the kernel, with the process behind them";
/// What a sandbox of this probe tries to reach by IP.
const TRIES: u64 = 4;

pub async fn examine(stage: &Stage) -> Layer {
    if let Err(error) = ebpf::check_permission() {
        return Layer::new(LAYER, LAYER_REQUEST, "the userns backend instead", State::NotNeeded)
            .with_reason(format!("{error}; names, TLS and HTTP hosts are checked without eBPF"));
    }
    match count_refused(stage).await {
        Ok(refused) if refused >= TRIES => {
            Layer::enforced(LAYER, LAYER_REQUEST, format!("{refused} connections refused"))
        }
        Ok(refused) => Layer::new(LAYER, LAYER_REQUEST, "the userns backend instead", State::Degraded)
            .with_reason(format!("the programs refused {refused} of {TRIES} connections")),
        Err(why) => {
            Layer::new(LAYER, LAYER_REQUEST, "the userns backend instead", State::Degraded).with_reason(why)
        }
    }
}

/// How many connections the programs refused to a sandbox without an entry in their maps.
async fn count_refused(stage: &Stage) -> Result<u64, String> {
    let loaded = Loaded::load().map_err(|error| error.to_string())?;
    let mut context = sandboxes::context(stage.directory()).map_err(|error| error.to_string())?;
    let (below, parent) = context
        .hierarchies
        .create_child(&format!("agentsh-{}-doctor-net", std::process::id()))
        .map_err(|error| format!("cannot create a cgroup (version 2) here: {error}"))?;
    let attached = loaded.attach(parent.as_fd()).map_err(|error| error.to_string())?;
    context.hierarchies = below;
    let arguments = sandboxes::arguments(&stage.facts, &["network"]);
    let probe = Probe { name: "kernel".to_owned(), arguments, ..Probe::default() };
    let probed = probe::run(&context, probe).await.map_err(|error| error.to_string())?;
    let answers = judge::read(&probed.output);
    let refused = loaded.counters().refused;
    drop((attached, parent));
    let told = answers.get("network").map_or(0, |answer| answer.forbidden.len());
    if told == 0 { Err("the attempts gave no result".to_owned()) } else { Ok(refused) }
}
