//! `agentsh mcp pins`: pinned programs and interfaces of servers, their changes, and accepting them.

use std::io::Write;

use clap::{Args, Subcommand};
use serde::Serialize;

mod difference;
pub(in crate::cli) mod offered;

use self::difference::Difference;
use agentsh_agents::trees;
use agentsh_base::types::ServerId;
use agentsh_store::{Candidate, Pin, PinState, PinStore, TrustedBy, WhichInterface, escape};
use agentsh_terminal::output::{Context, Failure, OK, json, list_of_ids, table};

#[derive(Clone, Debug, Args)]
pub struct PinsArgs {
    #[command(subcommand)]
    pub verb: PinsVerb,
}

#[derive(Clone, Debug, Subcommand)]
pub enum PinsVerb {
    /// List the pinned programs of servers, and their tools, prompts, resources and instructions
    List(PinSelection),
    /// Accept a server's program, or an offered tool, prompt or resource, that was refused because it changed
    Trust {
        #[command(flatten)]
        which: PinSelection,
        /// Only if the digest of the program, or the hash of --tool, is this one; with or without `sha256:`
        #[arg(long, value_name = "DIGEST")]
        hash: Option<String>,
    },
    /// Show what changed in a server's program or in what it offers
    Diff(PinSelection),
    /// Forget pins, so that the next start pins again
    Reset {
        #[command(flatten)]
        which: PinSelection,
        /// The pins of all servers
        #[arg(long)]
        all: bool,
    },
}

#[derive(Clone, Debug, Default, Args)]
pub struct PinSelection {
    /// Only this server
    #[arg(long, value_name = "ID")]
    pub server: Option<String>,
    /// Only servers of this project; with an empty value, only those of your own configuration
    #[arg(long, value_name = "PROJECT")]
    pub scope: Option<String>,
    /// Only the tool, prompt or resource with this name, not the server's program
    #[arg(long, value_name = "NAME", conflicts_with = "offered")]
    pub tool: Option<String>,
    /// Only tools, prompts and resources, not programs
    #[arg(long)]
    pub offered: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Serialize)]
struct Listed<'a> {
    server_id: &'a ServerId,
    scope: &'a str,
    kind: &'static str,
    program: &'a str,
    identity: &'a str,
    /// Null for a server that was never trusted; so are `trusted_at` and `trusted_by`.
    digest: Option<&'a str>,
    files: usize,
    trusted_at: Option<&'a str>,
    trusted_by: Option<TrustedBy>,
    /// Digest of the state that was refused since, if any.
    refused_digest: Option<&'a str>,
}

/// Runs the verb, and returns the exit status.
pub async fn answer(
    verb: &PinsVerb,
    context: &Context,
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> Result<u8, Failure> {
    let (PinsVerb::List(which)
    | PinsVerb::Trust { which, .. }
    | PinsVerb::Diff(which)
    | PinsVerb::Reset { which, .. }) = verb;
    let store = PinStore::new(&context.state_dir);
    let which = &which.resolve_names(&store).await?;
    match verb {
        PinsVerb::List(_) => list(&store, which, context, out, err).await?,
        PinsVerb::Trust { hash, .. } => trust(&store, which, hash.as_deref(), out).await?,
        PinsVerb::Diff(_) => diff(&store, which, out).await?,
        PinsVerb::Reset { all, .. } => reset(&store, which, *all, out).await?,
    }
    Ok(OK)
}

async fn list(
    store: &PinStore,
    which: &PinSelection,
    context: &Context,
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> Result<(), Failure> {
    let pins = store.list().await?;
    let candidates = store.candidates(None).await?;
    let programs: Vec<Listed<'_>> = pins
        .iter()
        .filter(|pin| which.names(&pin.state.server_id, &pin.state.scope))
        .map(|pin| listed(pin, &candidates))
        .chain(never_trusted(&pins, &candidates).filter(|one| which.names(one.server_id, one.scope)))
        .filter(|_| !which.is_offered())
        .collect();
    let offered = offered::list_interface_pins(store, which).await?;
    if which.json {
        return print_pins(out, &programs, &offered);
    }
    if programs.is_empty() && offered.is_empty() {
        writeln!(err, "nothing is pinned; a server's first start and its first listing pin it")?;
    }
    let head = ["server", "scope", "kind", "name", "hash", "trusted_at", "trusted_by", "refused"];
    let rows = programs.iter().map(|pin| {
        let name = format!("{} {}", pin.program, pin.identity);
        let at = pin.trusted_at.map(|at| context.time(at)).unwrap_or_default();
        let (hash, refused) = (context.hash(pin.digest), context.hash(pin.refused_digest));
        row([&pin.server_id.0, pin.scope, pin.kind, &name, &hash, &at, trusted_by(pin.trusted_by), &refused])
    });
    let rows = rows.chain(offered.iter().map(|one| one.row(context)));
    table(out, context, &head, rows.collect()).map(|_| ())
}

fn row(cells: [&str; 8]) -> Vec<String> {
    cells.map(str::to_owned).to_vec()
}

fn trusted_by(trusted: Option<TrustedBy>) -> &'static str {
    trusted.map_or("nobody", TrustedBy::as_str)
}

/// Prints the pins of programs and of interfaces.
fn print_pins(
    out: &mut dyn Write,
    programs: &[impl Serialize],
    offered: &[impl Serialize],
) -> Result<(), Failure> {
    let values = programs.iter().map(serde_json::to_value).chain(offered.iter().map(serde_json::to_value));
    json(out, &values.collect::<Result<Vec<_>, _>>().map_err(std::io::Error::other)?)
}

fn listed<'a>(pin: &'a Pin, candidates: &'a [Candidate]) -> Listed<'a> {
    let state = &pin.state;
    let refused = candidates.iter().find(|candidate| {
        candidate.state.server_id == state.server_id && candidate.state.scope == state.scope
    });
    Listed {
        server_id: &state.server_id,
        scope: &state.scope,
        kind: "program",
        program: &state.program,
        identity: &state.identity,
        digest: Some(&state.digest),
        files: state.manifest.len(),
        trusted_at: Some(&pin.trusted_at),
        trusted_by: Some(pin.trusted_by),
        refused_digest: refused.map(|candidate| candidate.state.digest.as_str()),
    }
}

/// Refused programs that have no pin.
fn never_trusted<'a>(pins: &'a [Pin], candidates: &'a [Candidate]) -> impl Iterator<Item = Listed<'a>> {
    let is_same =
        |one: &PinState, other: &PinState| one.server_id == other.server_id && one.scope == other.scope;
    let unpinned = candidates.iter().map(|candidate| &candidate.state);
    unpinned.filter(move |state| !pins.iter().any(|pin| is_same(&pin.state, state))).map(|state| Listed {
        server_id: &state.server_id,
        scope: &state.scope,
        kind: "program",
        program: &state.program,
        identity: &state.identity,
        digest: None,
        files: state.manifest.len(),
        trusted_at: None,
        trusted_by: None,
        refused_digest: Some(&state.digest),
    })
}

async fn trust(
    store: &PinStore,
    which: &PinSelection,
    hash: Option<&str>,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    let server = which.server.as_ref().ok_or_else(|| Failure::Usage("trust needs --server ID".to_owned()))?;
    let found = candidates(store, which).await?;
    if let Some(asked) = hash.filter(|_| which.is_offered()) {
        return offered::trust_hash(store, which, asked, out).await;
    }
    // A digest names a program.
    if hash.is_none() && offered::trust(store, which, found.is_empty(), out).await? && found.is_empty() {
        return Ok(());
    }
    let scope = match found.as_slice() {
        [only] => only.state.scope.clone(),
        [] => which.scope.clone().unwrap_or_default(),
        several => {
            let scopes: Vec<_> = several.iter().map(|one| format!("--scope '{}'", one.state.scope)).collect();
            let text = format!("`{server}` was refused in more than one place: add {}", scopes.join(" or "));
            return Err(Failure::Usage(text));
        }
    };
    let pin = store.trust_candidate(&ServerId(server.clone()), &scope, hash).await?;
    if which.json {
        return json(out, &listed(&pin, &[]));
    }
    let program = escape::line(&pin.state.program);
    writeln!(out, "trusted {}: {program} {}", escape::line(server), escape::line(&pin.state.digest))?;
    Ok(())
}

async fn diff(store: &PinStore, which: &PinSelection, out: &mut dyn Write) -> Result<(), Failure> {
    let mut differences = Vec::new();
    let changed = offered::Change::all(store, which).await?;
    for candidate in candidates(store, which).await? {
        differences.push(Difference::of(store, candidate).await?);
    }
    if which.json {
        return print_pins(out, &differences, &changed);
    }
    if differences.is_empty() && changed.is_empty() {
        writeln!(out, "no difference: nothing was refused")?;
    }
    for difference in &differences {
        difference.print(out)?;
    }
    for change in &changed {
        change.print(out)?;
    }
    Ok(())
}

async fn reset(
    store: &PinStore,
    which: &PinSelection,
    all: bool,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    if which.server.is_none() && !all {
        return Err(Failure::Usage("reset needs --server ID, or --all to forget every pin".to_owned()));
    }
    if which.server.is_some() && all {
        return Err(Failure::Usage("reset takes --server ID or --all, not both".to_owned()));
    }
    let server = which.server.clone().map(ServerId);
    let offered = store.reset_interfaces(which.interface()).await?;
    let removed = match which.is_offered() {
        true => offered,
        false => store.reset(server.as_ref(), which.scope.as_deref()).await?,
    };
    if which.json {
        return json(out, &serde_json::json!({"removed": removed}));
    }
    writeln!(out, "forgot {removed} {}", if removed == 1 { "pin" } else { "pins" })?;
    Ok(())
}

async fn candidates(store: &PinStore, which: &PinSelection) -> Result<Vec<Candidate>, Failure> {
    if which.is_offered() {
        return Ok(Vec::new());
    }
    let mut found = store.candidates(None).await?;
    found.retain(|candidate| which.names(&candidate.state.server_id, &candidate.state.scope));
    Ok(found)
}

impl PinSelection {
    /// With the whole name of what is named: a skill or plugin also goes by its name without the place, if only one does.
    ///
    /// # Errors
    /// When a named server has neither a pin nor a refused state.
    async fn resolve_names(&self, store: &PinStore) -> Result<Self, Failure> {
        let Some(server) = &self.server else { return Ok(self.clone()) };
        let ids = store.servers().await?;
        if ids.contains(server) {
            return Ok(self.clone());
        }
        let called: Vec<&String> =
            ids.iter().filter(|id| trees::short_name(id) == Some(server.as_str())).collect();
        match called.as_slice() {
            [] => {}
            [only] => return Ok(Self { server: Some((*only).clone()), ..self.clone() }),
            several => {
                let servers: Vec<_> = several.iter().map(|id| format!("--server '{id}'")).collect();
                let text = format!("`{server}` is in more than one place: write {}", servers.join(" or "));
                return Err(Failure::Usage(text));
            }
        }
        let text = format!("no server '{server}' has a pin or was refused; there {}", list_of_ids(&ids));
        Err(Failure::No(text))
    }

    /// Only what servers offer is meant.
    fn is_offered(&self) -> bool {
        self.offered || self.tool.is_some()
    }

    fn interface(&self) -> WhichInterface {
        let (server, scope, name) = (self.server.clone(), self.scope.clone(), self.tool.clone());
        WhichInterface { server, scope, name, kind: None }
    }

    fn names(&self, server: &ServerId, scope: &str) -> bool {
        self.server.as_ref().is_none_or(|wanted| *wanted == server.0)
            && self.scope.as_ref().is_none_or(|wanted| wanted == scope)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

    use super::*;
    use agentsh_store::testing::START;
    use agentsh_terminal::output::finish;
    use sha2::{Digest, Sha256};
    use std::collections::BTreeMap;
    use std::path::Path;

    fn state(files: &[(&str, &[u8])]) -> (PinState, BTreeMap<String, Vec<u8>>) {
        let hex = |bytes: &[u8]| agentsh_base::hex(&Sha256::digest(bytes));
        let manifest: BTreeMap<String, String> =
            files.iter().map(|(path, content)| ((*path).to_owned(), hex(content))).collect();
        let state = PinState {
            server_id: ServerId("fs".to_owned()),
            scope: String::new(),
            program: "/usr/bin/node".to_owned(),
            identity: "pkg@1.0.0".to_owned(),
            digest: format!("sha256:{}", hex(format!("{manifest:?}").as_bytes())),
            manifest,
        };
        (state, files.iter().map(|(_, content)| (hex(content), content.to_vec())).collect())
    }

    async fn changed_server(dir: &Path) -> PinState {
        let store = PinStore::new(dir);
        let (old, texts) =
            state(&[("index.js", b"one\ntwo\nthree\n"), ("gone.js", b"x"), ("lib.node", &[0xff, 0xfe])]);
        store.trust(&old, &texts, TrustedBy::FirstUse).await.unwrap();
        let (new, texts) = state(&[
            ("index.js", b"one\n\x1b[2Jevil\nthree\n"),
            ("new.js", b"y"),
            ("lib.node", &[0xff, 0xfd]),
        ]);
        store.refuse(&new, &texts).await.unwrap();
        new
    }

    async fn ask(verb: PinsVerb, dir: &Path) -> (u8, String) {
        let context = Context { state_dir: dir.to_owned(), now: START.parse().unwrap(), width: None };
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let result = answer(&verb, &context, &mut out, &mut err).await;
        let status = finish(result, &mut err);
        out.extend(err);
        (status, agentsh_terminal::output::without_colour(out))
    }

    fn fs() -> PinSelection {
        PinSelection { server: Some("fs".to_owned()), ..PinSelection::default() }
    }

    /// Times are not the same twice.
    fn without_times(text: &str) -> serde_json::Value {
        let mut value: serde_json::Value = serde_json::from_str(text).unwrap();
        for entry in value.as_array_mut().unwrap() {
            for name in ["trusted_at", "refused_at"] {
                if let Some(time) = entry.get_mut(name) {
                    assert!(time.as_str().unwrap().ends_with('Z'));
                    *time = "(time)".into();
                }
            }
        }
        value
    }

    #[tokio::test]
    async fn a_difference_is_shown_line_by_line_and_safely() {
        let dir = tempfile::tempdir().unwrap();
        changed_server(dir.path()).await;
        let (status, text) = ask(PinsVerb::Diff(fs()), dir.path()).await;
        assert_eq!(status, OK);
        for expected in
            ["    -two\n", "    +\\u{1b}[2Jevil\n", "removed   gone.js", "added     new.js", "not kept"]
        {
            assert!(text.contains(expected), "{expected:?} in {text}");
        }
        assert!(!text.contains('\u{1b}'));
        let (_, text) = ask(PinsVerb::Diff(PinSelection { json: true, ..fs() }), dir.path()).await;
        insta::assert_json_snapshot!("pins_diff", without_times(&text));
        let (_, text) = ask(PinsVerb::List(PinSelection { json: true, ..fs() }), dir.path()).await;
        insta::assert_json_snapshot!("pins_list", without_times(&text));
    }

    #[tokio::test]
    async fn trust_accepts_only_what_was_shown() {
        let dir = tempfile::tempdir().unwrap();
        let new = changed_server(dir.path()).await;
        let trusted = |hash: &str| PinsVerb::Trust { which: fs(), hash: Some(hash.to_owned()) };
        let (status, text) = ask(trusted("sha256:00"), dir.path()).await;
        assert!(status == 1 && text.contains("not sha256:00"), "{text}");
        assert_eq!(ask(trusted(&new.digest), dir.path()).await.0, OK);
        assert_eq!(PinStore::new(dir.path()).load(&new.server_id, "").await.unwrap().unwrap().state, new);
        assert_eq!(ask(trusted(&new.digest), dir.path()).await.0, 1);
        assert_eq!(ask(PinsVerb::Diff(fs()), dir.path()).await.1, "no difference: nothing was refused\n");
        let reset = PinsVerb::Reset { which: fs(), all: false };
        assert_eq!(ask(reset.clone(), dir.path()).await.1, "forgot 1 pin\n");
        let (status, text) = ask(reset, dir.path()).await;
        assert!(
            status == 1 && text.contains("no server 'fs' has a pin or was refused; there is none"),
            "{text}"
        );
    }

    #[tokio::test]
    async fn skill_is_found_by_name_if_the_name_is_unique() {
        let dir = tempfile::tempdir().unwrap();
        let store = PinStore::new(dir.path());
        let pinned = |place: &str| {
            let (mut state, texts) = state(&[("SKILL.md", b"x")]);
            state.server_id = ServerId(format!("skill:x@{place}"));
            (state, texts)
        };
        let (one, texts) = pinned(".claude/skills");
        store.trust(&one, &texts, TrustedBy::FirstUse).await.unwrap();
        let which = PinSelection { server: Some("skill:x".to_owned()), ..PinSelection::default() };
        let (status, text) = ask(PinsVerb::List(which.clone()), dir.path()).await;
        assert!(status == OK && text.contains("skill:x@.claude/skills"), "{text}");
        // It was never trusted, but is listed as well.
        let (two, texts) = pinned(".codex/skills");
        store.refuse(&two, &texts).await.unwrap();
        let (_, text) = ask(PinsVerb::List(PinSelection::default()), dir.path()).await;
        assert!(text.contains("skill:x@.codex/skills") && text.contains("nobody"), "{text}");
        let (status, text) = ask(PinsVerb::Trust { which, hash: None }, dir.path()).await;
        assert!(status == 2 && text.contains("--server 'skill:x@.codex/skills'"), "{text}");
    }

    #[tokio::test]
    async fn incomplete_and_unbuilt_questions_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        for verb in [
            PinsVerb::Trust { which: PinSelection::default(), hash: None },
            PinsVerb::Reset { which: PinSelection::default(), all: false },
        ] {
            let (status, text) = ask(verb, dir.path()).await;
            assert!(status == 2 && text.starts_with("error: "), "{text}");
        }
        changed_server(dir.path()).await;
        assert_eq!(ask(PinsVerb::Reset { which: fs(), all: true }, dir.path()).await.0, 2);
    }
}
