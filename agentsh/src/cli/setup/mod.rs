//! `agentsh setup`: if AppArmor restricts user namespaces (as on Ubuntu), installs a profile that allows them for
//! agentsh. The restriction stays for all other programs.

mod probe;

use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use clap::Args;

use agentsh_authoring::edit;
use agentsh_host::copies::write_anew;
use agentsh_store::escape;
use agentsh_terminal::exit::{NO, OK};
use agentsh_terminal::output::Failure;

pub(super) use probe::{VERB as PROBE_VERB, run_inside};

/// The profile as packaged, with the package's path.
const PROFILE: &str = include_str!("apparmor.profile");
const PACKAGED: &str = "/usr/bin/agentsh";
/// Below the root of the machine.
const PLACE: &str = "etc/apparmor.d/agentsh";
const RESTRICTION: &str = "proc/sys/kernel/apparmor_restrict_unprivileged_userns";
const PARSERS: [&str; 4] =
    ["usr/sbin/apparmor_parser", "sbin/apparmor_parser", "usr/bin/apparmor_parser", "bin/apparmor_parser"];

#[derive(Debug, Args)]
pub struct SetupArgs {
    /// Show what would be done, and do nothing
    #[arg(long, conflicts_with = "undo")]
    print: bool,
    /// Remove what `agentsh setup` made
    #[arg(long)]
    undo: bool,
    /// Root directory of another system, such as an image being built; nothing is probed
    #[arg(long, value_name = "DIR", hide = true)]
    root: Option<PathBuf>,
}

/// Exit status 0: nothing is needed, or it is done. 1: done, and user namespaces are still refused.
pub fn run(args: &SetupArgs, out: &mut dyn Write) -> Result<u8, Failure> {
    let executable = std::env::current_exe().and_then(|path| path.canonicalize());
    let executable =
        executable.map_err(|error| Failure::Failed(format!("cannot find the agentsh program: {error}")))?;
    let live = args.root.is_none();
    let machine = Machine {
        root: args.root.clone().unwrap_or_else(|| PathBuf::from("/")),
        executable: executable.clone(),
        probe: Box::new(
            move || if live { probe::may_make_namespaces(&executable).map(Some) } else { Ok(None) },
        ),
    };
    match (args.print, args.undo) {
        (true, _) => machine.print(out),
        (_, true) => machine.undo(out),
        _ => machine.install(out),
    }
}

/// Whether an ordinary user gets user namespaces; nothing where it cannot be tried.
type Probe = Box<dyn Fn() -> Result<Option<bool>, String>>;

struct Machine {
    root: PathBuf,
    executable: PathBuf,
    probe: Probe,
}

impl Machine {
    fn install(&self, out: &mut dyn Write) -> Result<u8, Failure> {
        if !self.is_restricted() {
            writeln!(out, "nothing to do: AppArmor does not restrict user namespaces here")?;
            return Ok(OK);
        }
        let place = self.place();
        let (before, wanted) = (self.profile_there()?, profile(&self.executable)?);
        if before == wanted && self.probe()? == Some(true) {
            writeln!(out, "nothing to do: {} is in force", place.display())?;
            return Ok(OK);
        }
        if before.is_empty() && self.probe()? == Some(true) {
            writeln!(out, "nothing to do: {} may already create user namespaces", self.executable())?;
            return Ok(OK);
        }
        let Some(parser) = self.parser() else {
            return Err(Failure::Failed(
                "AppArmor restricts user namespaces, but there is no apparmor_parser; install the package 'apparmor'"
                    .to_owned(),
            ));
        };
        if before != wanted {
            edit::show(out, &place, &before, &wanted)?;
            // No copy is kept: AppArmor would load it as well.
            write_anew(&place, wanted.as_bytes(), 0o644).map_err(|error| {
                let advice = if rustix::process::geteuid().is_root() { "" } else { "; start it with sudo" };
                Failure::Failed(format!("cannot write {}: {error}{advice}", place.display()))
            })?;
        }
        load(&parser, "--replace", &place)?;
        writeln!(out, "{} is loaded: {} may create user namespaces", place.display(), self.executable())?;
        if self.is_open_to_others() {
            writeln!(
                out,
                "warning: users other than root can write {}, and whoever replaces it gets user namespaces too; \
                 install it in \
                 /usr/local/bin and run `agentsh setup` there",
                self.executable()
            )?;
        }
        match self.probe()? {
            Some(false) => {
                writeln!(
                    out,
                    "user namespaces are still refused: `agentsh doctor` shows what else blocks them"
                )?;
                Ok(NO)
            }
            Some(true) => {
                writeln!(out, "tried as an ordinary user: it works")?;
                Ok(OK)
            }
            None => Ok(OK),
        }
    }

    fn print(&self, out: &mut dyn Write) -> Result<u8, Failure> {
        if !self.is_restricted() {
            writeln!(out, "# nothing to do: AppArmor does not restrict user namespaces here")?;
        }
        let place = self.place();
        writeln!(out, "# {}", place.display())?;
        write!(out, "{}", profile(&self.executable)?)?;
        writeln!(out, "# apparmor_parser --replace {}", place.display())?;
        Ok(OK)
    }

    fn undo(&self, out: &mut dyn Write) -> Result<u8, Failure> {
        let place = self.place();
        if self.profile_there()?.is_empty() {
            writeln!(out, "there is nothing to undo: {} is not there", place.display())?;
            return Ok(OK);
        }
        // Without AppArmor in the kernel nothing is loaded.
        if let Some(parser) = self.parser().filter(|_| self.is_restricted()) {
            load(&parser, "--remove", &place)?;
        }
        std::fs::remove_file(&place)
            .map_err(|error| Failure::Failed(format!("cannot remove {}: {error}", place.display())))?;
        writeln!(out, "{} is removed", place.display())?;
        Ok(OK)
    }

    fn place(&self) -> PathBuf {
        self.root.join(PLACE)
    }

    fn executable(&self) -> String {
        escape::line(&self.executable.display().to_string()).into_owned()
    }

    fn is_restricted(&self) -> bool {
        std::fs::read_to_string(self.root.join(RESTRICTION)).is_ok_and(|text| text.trim() == "1")
    }

    fn parser(&self) -> Option<PathBuf> {
        PARSERS.iter().map(|name| self.root.join(name)).find(|path| path.is_file())
    }

    /// Empty when there is none.
    fn profile_there(&self) -> Result<String, Failure> {
        let text = edit::read(&self.place())?;
        if !text.is_empty() && text.lines().next() != PROFILE.lines().next() {
            let place = self.place();
            return Err(Failure::Failed(format!(
                "{} was not made by agentsh: add `userns,` to it, or move it away",
                place.display()
            )));
        }
        Ok(text)
    }

    fn probe(&self) -> Result<Option<bool>, Failure> {
        (self.probe)().map_err(|why| Failure::Failed(format!("cannot try to make a user namespace: {why}")))
    }

    /// A user other than root may write the file.
    fn is_open_to_others(&self) -> bool {
        let above = self.executable.ancestors();
        above.filter_map(|path| path.metadata().ok()).any(|found| {
            // In a sticky directory only the owner replaces a file.
            let writable = found.mode() & 0o022 != 0 && found.mode() & 0o1000 == 0;
            found.uid() != 0 || writable
        })
    }
}

/// The profile for the executable that runs now.
fn profile(executable: &Path) -> Result<String, Failure> {
    let path = executable.to_str().unwrap_or_default();
    let is_plain = |character: char| character.is_alphanumeric() || "/._-+ ".contains(character);
    if !path.starts_with('/') || !path.chars().all(is_plain) {
        return Err(Failure::Failed(format!(
            "{} cannot be named in a profile of AppArmor; install agentsh under a plain path such as /usr/local/bin",
            escape::line(&executable.display().to_string())
        )));
    }
    let path = if path.contains(' ') { format!("\"{path}\"") } else { path.to_owned() };
    Ok(PROFILE.replace(PACKAGED, &path))
}

#[expect(
    clippy::disallowed_methods,
    reason = "a program of the system that changes the system, started by root"
)]
fn load(parser: &Path, how: &str, place: &Path) -> Result<(), Failure> {
    let output = Command::new(parser).arg(how).arg(place).stdin(Stdio::null()).output();
    let output =
        output.map_err(|error| Failure::Failed(format!("cannot start {}: {error}", parser.display())))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let said = escape::line(said.trim()).into_owned();
    Err(Failure::Failed(format!("{} {how} {} failed: {said}", parser.display(), place.display())))
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
