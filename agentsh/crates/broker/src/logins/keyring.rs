//! The desktop's secret store (Secret Service), through the program `secret-tool`.

use std::collections::BTreeMap;
use std::path::PathBuf;

use crate::credentials::ask_program;
use agentsh_host::Context;
use agentsh_host::host_programs;

const PROGRAM: &str = "secret-tool";

#[derive(Clone, Debug)]
pub struct Keyring {
    program: PathBuf,
    env: BTreeMap<String, String>,
    home: PathBuf,
}

impl Keyring {
    /// None if there is no desktop, or the program is missing.
    pub fn of(context: &Context) -> Option<Self> {
        let has_desktop =
            context.env.get("DBUS_SESSION_BUS_ADDRESS").is_some_and(|address| !address.is_empty());
        let program = host_programs::find(context, PROGRAM).filter(|_| has_desktop)?;
        Some(Self { program, env: host_programs::environment(context), home: context.home.clone() })
    }

    /// # Errors
    /// When it is locked, or does not answer in time.
    pub fn store(&self, login: &str, label: &str, secrets: &str) -> Result<(), String> {
        let label = format!("--label={label}");
        self.ask(&["store", &label, "application", "agentsh", "login", login], secrets).map(drop)
    }

    /// # Errors
    /// Like [`Self::store`]; also when the keyring has no such login.
    pub fn find(&self, login: &str) -> Result<String, String> {
        self.ask(&["lookup", "application", "agentsh", "login", login], "")
    }

    /// # Errors
    /// Like [`Self::store`].
    pub fn forget(&self, login: &str) -> Result<(), String> {
        self.ask(&["clear", "application", "agentsh", "login", login], "").map(drop)
    }

    fn ask(&self, words: &[&str], input: &str) -> Result<String, String> {
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        let verb = words.first().cloned().unwrap_or_default();
        ask_program(&self.program, &words, &self.home, &self.env, input)
            .map_err(|why| format!("`{PROGRAM} {verb}`: {why}"))
    }
}
