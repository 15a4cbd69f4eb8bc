//! Lists and prints the profiles of servers.

use std::io::Write;
use std::path::Path;

use serde_json::{Value, json};

use agentsh_policy::profile::{self, ServerProfile};
use agentsh_terminal::output::Failure;

/// One line for each profile, the user's own first.
pub fn list(config_home: &Path, json: bool, out: &mut dyn Write) -> Result<u8, Failure> {
    let profiles = profile::all(config_home).map_err(crate::policy_failure)?;
    if json {
        let listed: Vec<Value> = profiles
            .iter()
            .map(|profile| {
                json!({"name": profile.name, "source": profile.file, "packages": packages(profile),
                    "hosts": hosts(profile), "why": profile.why})
            })
            .collect();
        writeln!(out, "{}", Value::Array(listed))?;
        return Ok(0);
    }
    let rows: Vec<[String; 3]> = profiles
        .iter()
        .map(|profile| {
            let hosts = hosts(profile);
            let hosts = if hosts.is_empty() { "no host".to_owned() } else { hosts.join(", ") };
            [profile.name.clone(), packages(profile).join(", "), hosts]
        })
        .collect();
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let (first, second) = (width(0), width(1));
    for [name, packages, hosts] in &rows {
        writeln!(out, "{name:<first$}  {packages:<second$}  {hosts}")?;
    }
    Ok(0)
}

/// The file as it is written.
pub fn print(profile: &ServerProfile, json: bool, out: &mut dyn Write) -> Result<u8, Failure> {
    if json {
        let whole = json!({"name": profile.name, "source": profile.file, "packages": packages(profile),
            "hosts": hosts(profile), "why": profile.why, "text": profile.text()});
        writeln!(out, "{whole}")?;
    } else {
        write!(out, "# {}\n{}", profile.file, profile.text())?;
    }
    Ok(0)
}

fn packages(profile: &ServerProfile) -> Vec<String> {
    profile.packages.iter().map(|package| package.value.to_string()).collect()
}

/// The hosts that it may reach, and the ports of this machine.
fn hosts(profile: &ServerProfile) -> Vec<String> {
    let network = &profile.process.network;
    let allowed = network.allow.iter().map(|rule| rule.value.to_string());
    allowed.chain(network.loopback.iter().map(|port| format!("localhost:{}", port.value))).collect()
}
