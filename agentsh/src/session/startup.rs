//! The start of a session: its first events, and notes about the policy before anything starts.

use agentsh_base::remedy::{self, Allow};
use agentsh_host::host_programs;
use agentsh_store::words::{BundleState, LayerState};
use agentsh_store::{Event, PolicyLayer, redact};

use super::sentinel::Sentinel;
use super::{Session, SessionError, fleet, gateway, telemetry};

impl Session {
    /// Records the start; starts telemetry, the forwarder and the watchdog.
    ///
    /// # Errors
    /// When the watchdog thread cannot be started.
    pub(super) fn begin(
        &self,
        verb: &str,
        command: &[String],
        flags: &agentsh_policy::Flags,
        network_programs: Option<String>,
    ) -> Result<(), SessionError> {
        // Before the first event, because receivers get only later ones.
        let telemetry = telemetry::start(&self.facts, &self.record, || self.record.journal.subscribe());
        self.live.teardown.telemetry.replace(telemetry);
        self.record.journal.record(Event::SessionStarted {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            verb: verb.to_owned(),
            agent: redact::command(command),
            project: self.facts.context.directory.display().to_string(),
            policy: self.facts.policy.source.clone(),
            kernel: kernel(),
            uid: rustix::process::getuid().as_raw(),
            network_programs,
            policy_layers: self.facts.policy.layers.iter().map(hash_layer).collect(),
            head: self.facts.head.clone(),
        });
        if let Some(why) = fleet::start(&self.facts.context.state) {
            self.record.note(&format!("fleet: nothing is forwarded: {why}"));
        }
        let context = &self.facts.context;
        agentsh_guards::recover_all(
            &context.state,
            &host_programs::writable(context),
            &mut |path, what, detail| {
                self.record.note(&agentsh_store::escape::line(&detail));
                let path = path.to_string_lossy().into_owned();
                self.record.journal.record(Event::GuardChanged { server_id: None, path, what, detail });
            },
        );
        self.record.enforcement(None, &self.facts.context.notes);
        self.report_policy(verb);
        self.report_flags(flags);
        let sentinel = Sentinel::start(self.record.journal.clone(), self.facts.policy.mcp.max_line_bytes);
        let sentinel = sentinel
            .map_err(|error| SessionError::Policy(format!("cannot start the watchdog thread: {error}")))?;
        self.live.teardown.sentinel.replace(Some(sentinel));
        Ok(())
    }

    /// Reports what this version does not enforce, and probable mistakes.
    fn report_policy(&self, verb: &str) {
        if let Some(found) = &self.facts.policy.organisation {
            let (state, detail) = match &found.refused {
                Some(why) => (BundleState::Refused, format!("a newer one was refused: {why}")),
                None if found.is_expired => {
                    (BundleState::Expired, format!("it expired at {}; it stays in force", found.expires))
                }
                None => (BundleState::InForce, String::new()),
            };
            if state != BundleState::InForce {
                let version = found.version;
                self.record.note(&format!(
                    "policy of the organisation '{}', version {version}: {detail}",
                    found.name
                ));
            }
            let (name, version) = (found.name.clone(), Some(found.version));
            self.record.journal.record(Event::PolicyBundle { name, version, state, detail });
        }
        for warning in &self.facts.policy.warnings {
            self.record.note(&format!("{}: {}", warning.rule, warning.value));
        }
        let mcp = &self.facts.policy.mcp;
        let about_clients =
            mcp.rules.iter().filter(|rule| verb != "gateway" && gateway::is_about_client(&rule.value));
        let only_there = "only `agentsh gateway` knows the network and the headers of a client";
        let unheld = mcp.not_enforced.iter().map(|rule| (rule, agentsh_policy::NO_ENGINE));
        for (rule, why) in unheld.chain(about_clients.map(|rule| (&rule.rule, only_there))) {
            self.record.journal.record(Event::Enforcement {
                server_id: None,
                layer: rule.id.clone(),
                asked: format!("as written in {rule}"),
                got: "nothing".to_owned(),
                state: LayerState::Absent,
                why: why.to_owned(),
            });
        }
    }

    /// Suggests how to make flags permanent.
    fn report_flags(&self, flags: &agentsh_policy::Flags) {
        let server = flags.server.as_ref().map(|id| id.0.clone());
        let read = flags.read.iter().map(|path| remedy::path(path));
        let words = flags.allow.iter().cloned().chain(read).collect();
        let written = flags.write.iter().map(|path| remedy::path(path)).collect();
        let allow = Allow { server: server.clone(), words, env: flags.env.clone(), ..Allow::default() };
        let write = Allow { server, words: written, write: true, ..Allow::default() };
        let denied =
            agentsh_policy::Flags { deny_tool: flags.deny_tool.clone(), ..agentsh_policy::Flags::default() };
        let denied = denied.text().unwrap_or_default();
        let file = self.facts.context.config.join("agentsh/policy.yaml");
        let commands = [allow, write].into_iter().filter_map(|allow| Some(format!("`{}`", allow.line()?)));
        let denied = denied.lines().map(|line| format!("add to {}: {line}", file.display()));
        for how in commands.chain(denied) {
            self.record.note(&format!("for this run only; to make it permanent: {how}"));
        }
    }
}

fn hash_layer((file, layer): (&String, &agentsh_policy::WrittenLayer)) -> PolicyLayer {
    PolicyLayer { file: file.clone(), hash: layer.hash.clone() }
}

fn kernel() -> String {
    let name = rustix::system::uname();
    format!("{} {}", name.sysname().to_string_lossy(), name.release().to_string_lossy())
}
