//! Words of the user's configurations that are files: what a shell, ssh, npm, an editor or the desktop starts or reads by itself.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use agentsh_base::small_file;
use agentsh_sandbox::cached_host::CachedHost;
use agentsh_sandbox::host::Host;
use agentsh_sandbox::spec::NamedKind;

use super::{Context, NamedFiles};

/// Below the home, of shells: they name many files that nobody starts.
const OF_SHELLS: [&str; 9] = [
    ".bashrc",
    ".bash_profile",
    ".bash_login",
    ".bash_aliases",
    ".profile",
    ".zshrc",
    ".zprofile",
    ".zshenv",
    ".config/fish/config.fish",
];
/// Of other programs.
const OF_PROGRAMS: [&str; 17] = [
    ".ssh/config",
    ".gnupg/gpg.conf",
    ".gnupg/gpg-agent.conf",
    ".npmrc",
    ".cargo/config.toml",
    ".config/direnv/direnvrc",
    ".direnvrc",
    ".tmux.conf",
    ".config/tmux/tmux.conf",
    ".vimrc",
    ".config/nvim/init.lua",
    ".config/nvim/init.vim",
    ".emacs",
    ".emacs.d/init.el",
    ".gdbinit",
    ".config/Code/User/settings.json",
    ".config/zed/settings.json",
];
/// Directories of them.
const DIRECTORIES: [&str; 2] = [".config/systemd/user", ".config/autostart"];
/// Variables of which every file counts; of the others, programs.
const VARIABLES: [&str; 6] = ["BASH_ENV", "ENV", "PYTHONSTARTUP", "NODE_OPTIONS", "PERL5OPT", "RUBYOPT"];
/// Of one configuration, and of one directory.
const MAX_BYTES: u64 = 64 << 10;
const MAX_ENTRIES: usize = 200;

impl NamedFiles<'_> {
    pub(super) fn read_configurations(&mut self, host: &CachedHost<'_>) {
        let context = self.context;
        // Most are missing: a directory is read once, and not asked for each.
        host.read(&context.home);
        let mut read = |path: &Path, every: bool| {
            if !host.is_file(path) {
                return;
            }
            let text = small_file::read(path, MAX_BYTES).ok().flatten().unwrap_or_default();
            let mut found = Mentions::default();
            found.read(context, &String::from_utf8_lossy(&text), every);
            let why = format!("{} names it", self.shown(path));
            found.named.iter().for_each(|named| self.add(named, NamedKind::File, &why));
        };
        OF_SHELLS.iter().for_each(|path| read(&context.home.join(path), false));
        OF_PROGRAMS.iter().for_each(|path| read(&context.home.join(path), true));
        for directory in DIRECTORIES.map(|directory| context.home.join(directory)) {
            let names = host.exists(&directory).then(|| host.names(&directory)).flatten().unwrap_or_default();
            names.iter().take(MAX_ENTRIES).for_each(|(name, _)| read(&directory.join(name), true));
        }
        for (name, value) in context.env.iter().filter(|(name, _)| !name.ends_with("PWD")) {
            let mut found = Mentions::default();
            found.read(context, value, VARIABLES.contains(&name.as_str()));
            let why = format!("the variable {name} names it");
            found.named.iter().for_each(|named| self.add(named, NamedKind::File, &why));
        }
    }
}

#[derive(Default)]
struct Mentions {
    named: BTreeSet<PathBuf>,
    /// The mode of each file that a word could mean, once looked at: shells test for a file before they read it.
    modes: BTreeMap<PathBuf, Option<u32>>,
}

impl Mentions {
    /// `every`: any file counts, and not only a program or what a shell is told to read.
    fn read(&mut self, context: &Context, text: &str, every: bool) {
        let is_between = |sign: char| sign.is_whitespace() || "\"'`=,;:()[]{}<>|&".contains(sign);
        let lines = text.lines().filter(|line| !line.trim_start().starts_with('#'));
        for line in lines {
            let mut follows_source = false;
            for word in line.replace("${HOME}", "~").split(is_between).filter(|word| !word.is_empty()) {
                let is_read = every || follows_source;
                let places = if word.contains('/') { places(context, word) } else { Vec::new() };
                for path in places {
                    let mode = *self.modes.entry(path.clone()).or_insert_with(|| mode(&path));
                    if mode.is_some_and(|mode| is_read || mode & 0o111 != 0) {
                        self.named.insert(path);
                    }
                }
                follows_source = matches!(word, "source" | ".");
            }
        }
    }
}

/// Of a regular file.
fn mode(path: &Path) -> Option<u32> {
    let found = path.metadata().ok().filter(std::fs::Metadata::is_file)?;
    Some(found.permissions().mode())
}

/// What a word means: relative ones count from the home or from the project.
fn places(context: &Context, word: &str) -> Vec<PathBuf> {
    let of_home = ["~/", "$HOME/", "%h/"].iter().find_map(|prefix| word.strip_prefix(prefix));
    match of_home {
        Some(rest) => vec![context.home.join(rest)],
        // The machine's own files are many, and no sandbox writes them.
        None if word.starts_with('/') => {
            let path = PathBuf::from(word);
            if agentsh_sandbox::layout::is_system(&path) { Vec::new() } else { vec![path] }
        }
        None if word.contains("//") => Vec::new(),
        None => [&context.home, &context.project]
            .map(|base| agentsh_sandbox::host::plain(&base.join(word)))
            .into(),
    }
}
