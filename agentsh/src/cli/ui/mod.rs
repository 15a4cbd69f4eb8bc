//! `agentsh ui`: a local page that shows what agents did, and where questions are answered.

mod app;
pub(super) mod approvals;
mod events;
mod flow;
mod gate;
mod now;
mod policy;
mod receipt;
mod registry;
pub(super) mod rows;
mod servers;
pub(super) mod session;
pub(super) mod site;

use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use clap::Args;
use serde_json::json;
use tokio::net::TcpListener;

use self::app::App;
use self::gate::Gate;
use agentsh_authoring::CommandContext;
use agentsh_base::random;
use agentsh_host::host_programs;
use agentsh_terminal::output::{Context, Failure, OK, finish};
use agentsh_terminal::stop;

#[derive(Clone, Debug, Args)]
pub struct UiArgs {
    /// Port on 127.0.0.1; by default a free port on a loopback address that no other program uses
    #[arg(long, value_name = "PORT")]
    port: Option<u16>,
    /// Do not start a browser
    #[arg(long)]
    no_open: bool,
    /// Print the link as JSON
    #[arg(long)]
    json: bool,
}

/// Serves until SIGINT or SIGTERM.
pub async fn run(args: UiArgs, out: &mut dyn Write, err: &mut dyn Write) -> u8 {
    let result = match Context::of_process() {
        Ok(context) => serve(&args, context, out, err).await,
        Err(failure) => Err(failure),
    };
    finish(result, err)
}

async fn serve(
    args: &UiArgs,
    context: Context,
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> Result<u8, Failure> {
    let failed = |what: &str, error: std::io::Error| Failure::Failed(format!("cannot {what}: {error}"));
    let place =
        CommandContext::from_environment().map_err(|error| failed("find the current directory", error))?;
    let wanted = match args.port {
        Some(port) => SocketAddr::from((Ipv4Addr::LOCALHOST, port)),
        None => SocketAddr::from((own_address().map_err(|error| failed("choose an address", error))?, 0)),
    };
    let listener = TcpListener::bind(wanted).await;
    let listener = listener.map_err(|error| failed(&format!("listen on {wanted}"), error))?;
    let address = listener.local_addr().map_err(|error| failed("listen", error))?;
    let gate = Gate::new(address).map_err(|error| failed("make a link", error))?;
    let link = gate.link().unwrap_or_default();
    let stop = stop::stop_signal()?;
    if args.json {
        writeln!(out, "{}", json!({ "url": link, "address": address.to_string() }))?;
    } else {
        writeln!(out, "{link}")?;
        writeln!(err, "this link opens the page once; Ctrl-C ends it")?;
    }
    out.flush()?;
    if !args.no_open {
        open(&link);
    }
    let app = Arc::new(App::new(context.state_dir, place, gate));
    // Streams to open pages never end by themselves: nothing is waited for.
    tokio::select! {
        never = site::serve(listener, app) => match never {},
        () = stop => {}
    }
    Ok(OK)
}

/// An address of the loopback that nothing else uses. Cookies belong to a host with all of its ports: what an agent serves on
/// 127.0.0.1 gets none of ours.
fn own_address() -> std::io::Result<Ipv4Addr> {
    let digits = random::hex::<3>()?;
    let part =
        |at: usize| digits.get(at..at + 2).and_then(|two| u8::from_str_radix(two, 16).ok()).unwrap_or(7);
    Ok(Ipv4Addr::new(127, part(0).clamp(1, 254), part(2), part(4).clamp(1, 254)))
}

/// Starts the browser of the desktop, where there is one.
fn open(link: &str) {
    let has_desktop = ["DISPLAY", "WAYLAND_DISPLAY"].iter().any(|name| std::env::var_os(name).is_some());
    if !has_desktop {
        return;
    }
    // Without the program there is the link anyway.
    let Some(mut command) = host_programs::command_of_system("xdg-open") else { return };
    if let Ok(mut child) = command.arg(link).spawn() {
        tokio::task::spawn_blocking(move || child.wait());
    }
}
