//! `cargo xtask bench`: the release build next to its peer or the bare floor, in turns and in one run, with the
//! bar that it has to hold. A busy machine makes times longer, ratios and differences less so.

mod beside;
mod day;
mod ebpf;
mod exfil;
mod fleet;
mod gateway;
mod launch;
mod mcp;
mod measure;
mod memory;
mod model;
mod place;
mod relay;
mod scan;

use anyhow::Result;
use clap::{Args, ValueEnum};

use measure::Report;
use place::Place;

/// A day takes seconds.
const MAX_DAYS: u32 = 9;

#[derive(Debug, Args)]
pub struct Options {
    /// What is measured
    #[arg(value_enum, default_value = "all")]
    part: Part,
    /// How often each thing is done; more is steadier
    #[arg(long, default_value_t = 200)]
    rounds: u32,
    /// `fleet`: postgres://USER@HOST/NAME, or a file of SQLite
    #[arg(long, value_name = "URL|FILE", required_if_eq("part", "fleet"))]
    database: Option<String>,
    /// `fleet`: events a second; 0 sends none
    #[arg(long, default_value_t = 10_000)]
    rate: u32,
    /// `fleet`: events of the days before, written into PostgreSQL by psql, then every question of the command line
    #[arg(long, default_value_t = 0)]
    events: u64,
    /// `fleet`: over how many days these arrived
    #[arg(long, default_value_t = 10)]
    days: u32,
    /// `fleet`, `gateway`: for how long there is load, in seconds
    #[arg(long, default_value_t = 60)]
    seconds: u32,
    /// Measure this binary instead of building one; it must be the same version
    #[arg(long, value_name = "FILE")]
    binary: Option<std::path::PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    /// A static `true` in the sandbox of a server, next to bubblewrap and bare
    Launch,
    /// `agentsh run -- true` as a whole
    Run,
    /// MCP calls through the proxy, next to a server without one
    Mcp,
    /// Small calls and connections while another server gets long arguments
    Beside,
    /// Resident memory with three servers, and after many calls
    Memory,
    /// Connections under the eBPF programs, next to the same without them
    Ebpf,
    /// Connections out of a sandbox, next to direct ones
    Relay,
    /// Answers of a model through its channel, next to a bare reverse proxy
    Model,
    /// The fleet server with 50 hosts; not part of `all`
    Fleet,
    /// The gateway next to npm supergateway and PyPI mcp-proxy, which are installed; not part of `all`
    Gateway,
    /// The scanning engine: ordinary and adversarial text, a listing
    Scan,
    /// Builds and tests by cargo, npm, uv and go inside, next to outside; uses the network; not part of `all`
    Day,
    All,
}

/// True when every bar was held.
pub fn main(options: &Options) -> Result<bool> {
    let mut report = Report::default();
    // It needs no measuring program, and nothing is built where a binary is given.
    if let (Part::Gateway, Some(binary)) = (options.part, &options.binary) {
        gateway::measure(binary, options.rounds, options.seconds, &mut report)?;
        return Ok(report.all_held());
    }
    if options.part == Part::Day {
        let binary = options.binary.clone().map_or_else(place::agentsh, Ok)?;
        day::measure(&binary, options.rounds.min(MAX_DAYS), &mut report)?;
        return Ok(report.all_held());
    }
    let place = Place::make(options.binary.as_deref())?;
    let wanted = |part| options.part == part || options.part == Part::All;
    if wanted(Part::Launch) {
        launch::sandbox(&place, options.rounds, &mut report)?;
    }
    if wanted(Part::Run) {
        launch::measure_run(&place, options.rounds, &mut report)?;
        launch::measure_nested(&place, options.rounds.min(20), &mut report)?;
    }
    if wanted(Part::Mcp) {
        mcp::measure(&place, options.rounds, &mut report)?;
    }
    if wanted(Part::Beside) {
        beside::measure(&place, &mut report)?;
    }
    if wanted(Part::Ebpf) {
        ebpf::measure(&place, options.rounds, &mut report)?;
    }
    if wanted(Part::Memory) {
        memory::measure(&place, &mut report)?;
    }
    if wanted(Part::Relay) {
        relay::measure(&place, options.rounds, &mut report)?;
    }
    if wanted(Part::Model) {
        model::measure(&place, options.rounds, &mut report)?;
    }
    if wanted(Part::Scan) {
        scan::measure(&place, options.rounds, &mut report)?;
    }
    if options.part == Part::Gateway {
        gateway::measure(&place.agentsh, options.rounds, options.seconds, &mut report)?;
    }
    if let (Part::Fleet, Some(database)) = (options.part, &options.database) {
        let load = fleet::Load {
            rate: options.rate,
            seconds: options.seconds,
            events: options.events,
            days: options.days,
            rounds: options.rounds.min(40),
        };
        fleet::measure(&place, database, &load, &mut report)?;
    }
    Ok(report.all_held())
}
