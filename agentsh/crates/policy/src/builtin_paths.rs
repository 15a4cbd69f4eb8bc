//! Paths that agentsh treats specially whatever a policy grants. The sandbox plan and `policy explain` read the same
//! tables. `unmask:` lifts an entry by its name.

use std::collections::HashSet;
use std::path::Path;
use std::sync::LazyLock;

use Kind::{Dir, File};

use crate::texts::texts;

/// The kind of file at a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    File,
    Dir,
}

/// How files that are written there are treated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tier {
    /// Runs by itself, outside of any sandbox: guarded always.
    Runs,
    /// Instructs an agent, or configures a tool that somebody starts: writable, recorded, and shown at the end of a run;
    /// guarded where the policy says `guard: all`.
    Instructs,
}

/// A path that is guarded inside a writable grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProjectReadOnly {
    /// Relative to the project. Its last part may hold one `*`.
    pub path: &'static str,
    pub why: &'static str,
    pub kind: Kind,
    pub tier: Tier,
    /// Below the home directory: what shows that the user has a program that obeys such a file at once, without a question.
    /// If one of these exists and the file does not, a read-only stub prevents it from being created. Everything else is
    /// set aside as soon as it appears: before a program that asks has an answer, or one that reads it at its start.
    pub signs: &'static [&'static str],
    /// Directories in it that package managers write to: what is in them may be written, and nothing else. A dash at the end of a
    /// name stands for whatever follows.
    pub packages: &'static [&'static str],
}

/// Runs by itself.
const fn runs(kind: Kind) -> ProjectReadOnly {
    runs_in(kind, &[])
}

/// Runs by itself in a program that leaves these signs in the home directory.
const fn runs_in(kind: Kind, signs: &'static [&'static str]) -> ProjectReadOnly {
    ProjectReadOnly { path: "", why: "", kind, tier: Tier::Runs, signs, packages: &[] }
}

/// Instructs or configures.
const fn instructs(kind: Kind) -> ProjectReadOnly {
    ProjectReadOnly { tier: Tier::Instructs, ..runs(kind) }
}

/// Paths with the reason that they share.
macro_rules! paths {
    ($($($path:literal)+: $why:literal;)+) => { &[$($(($path, $why),)+)+] };
}

/// Paths with the kind of entry and the reason that they share.
macro_rules! project {
    ($($entry:expr => $($path:literal)+: $why:literal;)+) => {
        &[$($(ProjectReadOnly { path: $path, why: $why, ..$entry },)+)+]
    };
}

/// The guarded entry that means a name at the top of a directory, or below it; `all` counts what only instructs.
#[must_use]
pub fn guarded(name: &str, all: bool) -> Option<&'static ProjectReadOnly> {
    let mut entries = PROJECT_READ_ONLY.iter().filter(|entry| all || entry.tier == Tier::Runs);
    entries
        .find(|entry| entry.path == name || !name.contains('/') && entry.is_pattern() && entry.matches(name))
}

/// Directories in those of programs in which every entry runs; of many programs no table knows.
pub const RUN_FROM: [&str; 3] = ["hooks", "extensions", "plugins"];

/// Dotted names from which nothing is started: lists of patterns, versions, results, and what a package manager installs.
const START_NOTHING: &[&str] = texts! {
    ".DS_Store" ".cache" ".coverage" ".dockerignore" ".editorconfig" ".eslintcache" ".eslintignore"
    ".gitignore" ".gitkeep" ".mailmap" ".mypy_cache" ".next" ".node-version" ".npmignore" ".nvmrc"
    ".nyc_output" ".prettierignore" ".pytest_cache" ".python-version" ".ruby-version" ".ruff_cache" ".venv"
};

/// Whether a table knows a name at the top of a directory, or something below it.
#[must_use]
pub fn is_known(name: &str) -> bool {
    // Looked up for every name in a project, so it must be fast.
    static NAMES: LazyLock<HashSet<&str>> =
        LazyLock::new(|| PROJECT_READ_ONLY.iter().filter_map(|row| row.path.split('/').next()).collect());
    static PATTERNS: LazyLock<Vec<(&str, &str)>> =
        LazyLock::new(|| PROJECT_READ_ONLY.iter().filter_map(|row| row.path.split_once('*')).collect());
    let is_like = |(front, back): &(&str, &str)| {
        name.len() >= front.len() + back.len() && name.starts_with(front) && name.ends_with(back)
    };
    NAMES.contains(name) || START_NOTHING.contains(&name) || PATTERNS.iter().any(is_like)
}

/// Rows of the table that a name at the top of a directory stands for, or begins, with their paths.
pub fn rows_of(name: &str) -> impl Iterator<Item = (&str, &'static ProjectReadOnly)> {
    PROJECT_READ_ONLY.iter().filter_map(move |row| {
        let begins = row.path.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
        if begins {
            Some((row.path, row))
        } else {
            (row.is_pattern() && row.matches(name)).then_some((name, row))
        }
    })
}

impl ProjectReadOnly {
    /// Whether the last part of the path is a pattern, and this name matches it.
    #[must_use]
    pub fn matches(&self, name: &str) -> bool {
        let last = self.path.rsplit('/').next().unwrap_or(self.path);
        last.split_once('*').is_some_and(|(front, back)| {
            name.len() >= front.len() + back.len() && name.starts_with(front) && name.ends_with(back)
        })
    }

    /// Whether package managers write to a directory of this name in it.
    #[must_use]
    pub fn holds_packages(&self, name: &str) -> bool {
        self.packages
            .iter()
            .any(|kind| if kind.ends_with('-') { name.starts_with(kind) } else { name == *kind })
    }

    #[must_use]
    pub fn is_pattern(&self) -> bool {
        self.path.contains('*')
    }
}

/// In a git directory: the file that names the directory with the shared configuration and hooks.
pub const GIT_COMMON: &str = "commondir";

/// Directories of every repository: one without a working tree is known by them.
pub const GIT_BARE: [&str; 2] = ["objects", "refs"];

/// The content of a stub file. Most are empty; git reads its own, where a dot means that nothing is elsewhere. Without the slash
/// libgit2 does not find the repository.
#[must_use]
pub fn stub_content(path: &std::path::Path) -> &'static [u8] {
    if path.ends_with(GIT_COMMON) { b"./\n" } else { b"" }
}

/// Below the home directory, never visible: secrets, and the accounts of other programs. A path and the reason.
pub const HOME_MASKS: &[(&str, &str)] = paths! {
    ".ssh": "SSH keys";
    ".gnupg": "GPG keys";
    ".pki": "certificate keys";
    ".age" ".config/sops": "age keys";
    ".putty": "SSH keys";
    ".aws": "AWS credentials";
    ".azure": "Azure credentials";
    ".config/gcloud" ".boto": "Google Cloud credentials";
    ".oci": "Oracle Cloud credentials";
    ".aliyun": "Alibaba Cloud credentials";
    ".bluemix": "IBM Cloud credentials";
    ".config/doctl": "DigitalOcean token";
    ".config/hcloud": "Hetzner Cloud token";
    ".config/scw": "Scaleway credentials";
    ".config/linode-cli": "Linode token";
    ".config/rclone" ".s3cfg" ".mc": "cloud storage credentials";
    ".fly" ".config/fly": "Fly.io token";
    ".config/netlify": "Netlify token";
    ".config/vercel" ".local/share/com.vercel.cli": "Vercel token";
    ".config/heroku": "Heroku token";
    ".config/stripe": "Stripe key";
    ".wrangler" ".config/.wrangler": "Cloudflare token";
    ".cloudflared": "Cloudflare tunnel credentials";
    ".ngrok2" ".config/ngrok": "ngrok token";
    ".kube": "Kubernetes credentials";
    ".helm" ".config/helm": "Helm registry credentials";
    ".config/argocd": "Argo CD token";
    ".docker": "container registry credentials and sockets";
    ".config/containers": "container registry credentials";
    ".local/share/containers": "container storage";
    ".terraform.d" ".terraformrc": "Terraform token";
    ".pulumi": "Pulumi token";
    ".vault-token": "Vault token";
    ".config/gh" ".config/hub": "GitHub token";
    ".config/glab-cli": "GitLab token";
    ".config/tea": "Gitea token";
    ".git-credentials" ".config/git/credentials" ".gitcookies": "git passwords";
    ".subversion/auth": "Subversion passwords";
    ".hgrc": "Mercurial passwords";
    ".netrc" "_netrc" ".authinfo" ".authinfo.gpg": "passwords";
    ".npmrc" ".yarnrc.yml" ".config/pnpm/auth.ini": "npm token";
    ".pypirc": "PyPI token";
    ".config/pip" ".pip" ".config/uv" ".local/share/uv/credentials": "package index credentials";
    ".config/pypoetry/auth.toml": "PyPI token";
    ".condarc": "Conda token";
    ".cargo/credentials" ".cargo/credentials.toml": "Cargo token";
    ".gem/credentials" ".local/share/gem/credentials": "RubyGems token";
    ".bundle/config": "gem source credentials";
    ".composer/auth.json" ".config/composer/auth.json": "Packagist token";
    ".m2/settings.xml" ".m2/settings-security.xml": "Maven passwords";
    ".gradle/gradle.properties": "Gradle passwords";
    ".nuget/NuGet": "NuGet key";
    ".hex": "Hex key";
    ".pgpass" ".my.cnf" ".mylogin.cnf" ".pg_service.conf" ".rediscli_auth" ".dbeaver"
        ".local/share/DBeaverData" ".config/mongodb" ".snowflake" ".snowsql": "database passwords";
    ".databrickscfg": "Databricks token";
    ".kaggle": "Kaggle key";
    ".cache/huggingface/token" ".cache/huggingface/stored_tokens" ".huggingface": "Hugging Face token";
    ".config/wandb": "Weights & Biases key";
    ".password-store": "passwords";
    ".config/op" ".op": "1Password session";
    ".1password": "1Password agent socket";
    ".config/1Password": "1Password data";
    ".config/Bitwarden": "Bitwarden data";
    ".config/Bitwarden CLI": "Bitwarden session";
    ".config/keepassxc" ".cache/keepassxc": "KeePassXC data";
    ".lastpass" ".config/lastpass": "LastPass data";
    ".local/share/keyrings" ".local/share/kwalletd" ".gnome2/keyrings": "desktop keyring";
    ".local/share/gopass" ".config/gopass": "passwords";
    ".mozilla" ".config/mozilla" ".cache/mozilla" ".librewolf" ".zen" ".config/google-chrome"
        ".config/google-chrome-beta" ".config/google-chrome-unstable" ".config/chromium"
        ".config/BraveSoftware" ".config/microsoft-edge" ".config/opera" ".config/vivaldi"
        ".local/share/qutebrowser" ".tor-browser" ".local/share/torbrowser": "browser profile";
    ".var/app" "snap": "data of desktop applications";
    ".thunderbird" ".local/share/evolution" ".config/evolution": "mail";
    ".mutt" ".muttrc" ".msmtprc" ".mbsyncrc" ".offlineimaprc": "mail passwords";
    ".config/Signal": "messages";
    ".config/Slack" ".config/discord" ".config/Element" ".local/share/TelegramDesktop":
        "messages and session";
    ".bitcoin" ".ethereum" ".config/solana" ".electrum" ".config/Exodus" ".foundry/keystores": "wallet";
    ".claude" ".claude.json" ".config/claude" ".config/Claude" ".codex" ".gemini" ".cursor" ".config/Cursor":
        "account and history of another agent";
    ".config/github-copilot" ".copilot": "account of another agent";
    ".aider.conf.yml" ".continue": "keys of another agent";
    ".codeium": "account of another agent";
    ".config/goose" ".config/opencode": "keys of another agent";
    ".local/share/opencode": "account of another agent";
    ".config/zed": "keys of another agent";
    ".qwen": "account of another agent";
    ".cline": "keys of another agent";
    ".config/amp" ".local/share/amp" ".factory" ".kiro" ".config/cursor" ".local/share/cursor-agent":
        "account of another agent";
    ".local/share/goose" ".local/state/goose" ".local/state/opencode": "history of another agent";
    ".config/kilo" ".kilocode" ".roo": "keys of another agent";
    ".augment" ".codebuddy": "account of another agent";
    ".grok" ".crush" ".config/crush" ".local/share/crush" ".openhands" ".aider.model.settings.yml" ".aider":
        "keys of another agent";
    ".config/io.datasette.llm": "keys of model providers";
    ".config/windsurf" ".windsurf": "account of another agent";
    ".wakatime.cfg": "WakaTime key";
    ".config/openai": "OpenAI key";
    ".config/anthropic": "Anthropic key";
    ".config/Code/User/globalStorage" ".vscode-server/data/User/globalStorage": "editor accounts";
    ".config/agentsh": "the policy in force";
    ".local/state/agentsh" ".local/share/agentsh": "the records of agentsh";
    ".bash_history" ".zsh_history" ".local/share/fish" ".history" ".python_history" ".node_repl_history"
        ".psql_history" ".mysql_history" ".sqlite_history" ".rediscli_history" ".local/share/atuin":
        "shell history";
    ".Xauthority" ".ICEauthority": "access to the display";
    ".dbus": "access to the desktop session";
    ".smbcredentials": "passwords";
    ".krb5": "Kerberos tickets";
    ".wireguard" ".config/openvpn" ".config/tailscale": "VPN keys";
    ".config/remmina" ".local/share/remmina": "remote desktop passwords";
    ".config/filezilla": "server passwords";
    ".ansible/vault" ".vault_pass": "Ansible vault passwords";
    ".chef": "Chef keys";
    ".env": "environment secrets";
};

/// In the home directory, read-only even where the home is writable: what a shell, git or the desktop runs by
/// itself later, outside any sandbox.
pub const HOME_READ_ONLY: &[(&str, &str)] = paths! {
    ".bashrc" ".bash_profile" ".bash_login" ".bash_logout" ".bash_aliases" ".profile" ".zshrc" ".zprofile"
        ".zshenv" ".zlogin" ".zlogout" ".oh-my-zsh" ".config/zsh" ".config/fish" ".config/nushell" ".kshrc"
        ".cshrc" ".tcshrc" ".login": "runs in every shell";
    ".inputrc": "binds keys to commands";
    ".tmux.conf" ".config/tmux" ".screenrc": "runs commands";
    ".gitconfig" ".config/git": "git runs the programs named in it";
    ".ripgreprc": "ripgrep runs the programs named in it";
    ".config/autostart": "starts with the desktop";
    ".config/systemd" ".local/share/systemd": "starts with the session";
    ".config/environment.d" ".pam_environment": "sets variables of the session";
    ".config/plasma-workspace": "starts with the desktop";
    ".local/share/applications": "starts from the desktop";
    ".local/share/dbus-1": "starts on demand";
    ".xinitrc" ".xprofile" ".xsession" ".xsessionrc": "starts with the desktop";
    ".local/bin" "bin" ".cargo/bin": "contains the user's commands";
    ".cargo/config" ".cargo/config.toml": "cargo runs the programs named in it";
    ".cargo/env": "runs in every shell";
    ".rustup": "holds compilers";
    "go/bin" ".npm-global": "contains the user's commands";
    ".nvm" ".pyenv" ".rbenv" ".asdf" ".local/share/mise" ".config/mise" ".config/direnv":
        "runs in every shell";
    ".local/share/direnv": "decides which .envrc files run";
    ".vimrc" ".vim" ".config/nvim" ".emacs" ".emacs.d" ".config/emacs" ".config/Code/User" ".vscode":
        "runs in the editor";
    ".gdbinit" ".lldbinit": "runs in the debugger";
    ".psqlrc" ".sqliterc": "runs in the database client";
    ".irbrc": "runs in every Ruby console";
    ".pythonrc" ".ipython": "runs in every Python console";
    ".jupyter": "runs in every notebook";
    ".Rprofile": "runs in every R session";
    ".config/pip/pip.conf": "sets where packages come from";
};

/// What git ignores in all repositories of a user; in the directory of configurations.
pub const GIT_IGNORE: &str = "git/ignore";

/// At the top of the project.
pub const PROJECT_READ_ONLY: &[ProjectReadOnly] = project! {
    runs(Dir) => ".git/hooks": "git runs the hooks in it";
    runs(File) => ".git/config" ".git/config.worktree": "git runs the programs named in it";
    runs(File) => ".git/commondir": "redirects git to other configuration and hooks";
    runs(File) => ".git/lazygit.yml": "lazygit runs the programs named in it";
    runs(File) => ".hg/hgrc" ".hg/hgrc-not-shared": "Mercurial runs the programs named in it";
    runs(File) => ".jj/repo/config.toml" ".jj/config.toml" ".jj/workspace-config.toml":
        "Jujutsu runs the programs named in it";
    runs(File) => ".sl/config" ".sl/hgrc": "Sapling runs the programs named in it";
    runs(File) => "_darcs/prefs/defaults": "Darcs runs the programs named in it";
    runs(File) => ".pijul/config": "Pijul runs the programs named in it";
    runs(File) => ".mcp.json": "agents start the programs named in it";
    runs_in(Dir, &[".claude"]) => ".claude": "hooks and permissions of an agent";
    runs(Dir) => ".codex" ".gemini": "settings of an agent";
    runs_in(Dir, &[".cursor", ".config/Cursor"]) => ".cursor": "settings of an agent";
    runs(Dir) => ".opencode": "settings of an agent";
    runs_in(Dir, &[".continue"]) => ".continue": "agents start the programs named in it";
    runs_in(Dir, &[".roo"]) => ".roo": "agents start the programs named in it";
    runs_in(Dir, &[".codeium/windsurf", ".config/Windsurf"]) => ".windsurf": "hooks of an agent";
    runs_in(Dir, &[".kiro"]) => ".kiro": "hooks of an agent";
    runs_in(Dir, &[".aws/amazonq"]) => ".amazonq": "agents start the programs named in it";
    runs(Dir) => ".qwen": "settings of an agent";
    runs_in(Dir, &[".trae", ".config/Trae"]) => ".trae": "agents start the programs named in it";
    runs(Dir) => ".augment": "agents start the programs named in it";
    runs(File) => ".crush.json" "crush.json": "agents start the programs named in it";
    runs(Dir) => ".goose" ".junie": "agents start the programs named in it";
    runs(Dir) => ".factory": "hooks of an agent";
    runs(File) => "opencode.json" "opencode.jsonc" ".opencode.json": "agents start the programs named in it";
    runs(Dir) => ".kilocode" ".amp": "agents start the programs named in it";
    runs(Dir) => ".iflow": "hooks of an agent";
    runs(Dir) => ".llxprt": "agents start the programs named in it";
    runs(Dir) => ".codebuddy" ".github/hooks" ".clinerules/hooks": "hooks of an agent";
    runs(File) => ".openhands/hooks.json": "hooks of an agent";
    runs(File) => ".openhands/setup.sh": "runs when an agent starts";
    runs(File) => ".openhands/pre-commit.sh": "runs when an agent commits";
    runs(Dir) => ".pi/extensions": "agents load the extensions in it";
    runs(Dir) => ".repo/repo": "runs in every `repo` command";
    runs(File) => ".aider.conf.yml": "agents run the programs named in it";
    runs_in(Dir, &[".vscode", ".vscode-server", ".config/Code", ".config/VSCodium"]) => ".vscode":
        "the editor runs the tasks in it";
    runs(Dir) => ".idea": "the editor runs the tasks in it";
    runs_in(Dir, &[".config/zed"]) => ".zed": "the editor runs the tasks in it";
    runs(Dir) => ".helix": "the editor starts the language servers named in it";
    runs(Dir) => ".fleet" ".nova" ".run" ".vs" ".theia": "the editor runs the tasks in it";
    runs(File) => ".lite_project.lua" ".ycm_extra_conf.py": "runs in the editor";
    runs(File) => "hie.yaml" ".merlin": "the language server runs the programs named in it";
    runs(File) => ".latexmkrc" "latexmkrc": "runs in every latexmk run";
    runs(File) => ".lsp/config.edn": "the language server runs the programs named in it";
    runs(File) => ".lazygit.yml": "lazygit runs the programs named in it";
    runs(File) => ".reviewboardrc": "runs in the client of Review Board";
    runs(File) => ".chef/config.rb" ".chef/knife.rb": "runs in every Chef command";
    runs(File) => ".luarc.json" ".luarc.jsonc" ".solargraph.yml": "the editor loads the plugins named in it";
    runs(File) => ".emacs.desktop": "runs in the editor";
    runs(File) => "*.code-workspace": "the editor runs the tasks in it";
    runs(File) => "*.sublime-project": "the editor runs the build systems in it";
    runs(File) => "*.sublime-workspace": "the editor obeys the state in it";
    runs(File) => ".exrc" ".vimrc" "_vimrc" ".nvimrc" ".nvim.lua": "runs in the editor";
    runs(Dir) => ".vim": "runs in the editor";
    runs(File) => ".lvimrc" ".dir-locals.el" ".dir-locals-2.el": "runs in the editor";
    runs(File) => ".projectile": "the editor runs the commands named in it";
    runs(File) => ".kakrc.local": "runs in the editor";
    runs(File) => ".envrc": "runs in every shell that enters the directory";
    // `layout python`, `go`, `ruby` and `perl` of direnv-stdlib(1).
    ProjectReadOnly { packages: &["python-", "go", "ruby", "perl5"], ..runs(Dir) } => ".direnv":
        "every shell that enters the directory uses the programs and settings in it";
    runs(File) => ".rvmrc" ".autoenv.zsh" ".autoenv": "runs in every shell that enters the directory";
    runs(Dir) => ".husky" ".githooks": "git runs the hooks in it";
    runs(Dir) => ".devcontainer": "the editor runs the commands in it";
    runs(File) => ".devcontainer.json": "the editor runs the commands in it";
    runs(File) => ".agentsh.yaml": "the policy of the project";
    runs(File) => ".gdbinit" ".lldbinit" ".pdbrc" ".pdbrc.py" ".byebugrc" ".perldb": "runs in the debugger";
    runs(File) => ".ocamlinit": "runs in every OCaml console";
    runs(File) => "jupyter_*_config.py": "runs in every notebook server";
    runs(File) => ".pryrc" ".irbrc" "irbrc" "_irbrc" "$irbrc": "runs in every Ruby console";
    runs(File) => ".Rprofile": "runs in every R session";
    runs(File) => ".RData": "every R session loads it";
    runs(File) => ".Renviron": "sets variables of every R session";
    runs(File) => ".pythonrc": "runs in every Python console";
    runs(File) => ".iex.exs": "runs in every Elixir console";
    runs(File) => ".ghci": "runs in every Haskell console";
    runs(File) => ".erlang": "runs in every Erlang shell";
    runs(File) => ".octaverc": "runs in every Octave session";
    runs(Dir) => ".julia": "runs in every Julia session";
    runs(File) => ".sqliterc" ".psqlrc": "runs in the database client";
    runs(File) => ".ripgreprc": "ripgrep runs the programs named in it";
    // Everybody has git.
    ProjectReadOnly { signs: &["."], ..instructs(File) } => ".gitmodules":
        "git fetches the repositories named in it";
    instructs(File) => ".gitattributes": "chooses which configured filters git runs";
    instructs(Dir) => "CVS": "CVS runs the programs named in it";
    instructs(Dir) => "_MTN": "Monotone runs the programs named in it";
    instructs(File) => "_FOSSIL_": "Fossil runs the programs named in it";
    instructs(Dir) => ".bsp": "the editor starts the build server named in it";
    instructs(File) => "CLAUDE.md" "CLAUDE.local.md" "AGENTS.md" "AGENTS.override.md" "GEMINI.md" "QWEN.md"
        "CONVENTIONS.md" "WARP.md" "CRUSH.md" ".cursorrules" ".windsurfrules": "instructions for agents";
    instructs(Dir) => ".clinerules": "instructions for agents";
    instructs(File) => ".roorules" ".goosehints" ".rules" ".github/copilot-instructions.md":
        "instructions for agents";
    instructs(Dir) => ".github/instructions": "instructions for agents";
    instructs(Dir) => ".github/workflows": "runs on the server that hosts the project";
    instructs(File) => ".gitlab-ci.yml": "runs on the server that hosts the project";
    instructs(File) => ".npmrc": "npm runs the programs named in it";
    instructs(Dir) => ".yarn/plugins" ".yarn/releases": "runs in yarn";
    instructs(File) => ".yarnrc" ".yarnrc.yml": "yarn runs the programs named in it";
    instructs(File) => ".pnpmfile.cjs" ".pnpmfile.mjs": "runs in pnpm";
    instructs(File) => "pnpm-workspace.yaml": "names programs and files that pnpm runs";
    instructs(File) => "bunfig.toml": "configures bun";
    instructs(File) => "pip.conf" "uv.toml": "sets where packages come from";
    instructs(File) => ".cargo/config" ".cargo/config.toml": "cargo runs the programs named in it";
    instructs(File) => "rust-toolchain" "rust-toolchain.toml": "cargo runs the compiler named in it";
    instructs(File) => "mise.toml" ".mise.toml" "mise*.toml" ".mise*.toml":
        "mise runs the tools and hooks named in it";
    instructs(Dir) => ".mise" "mise": "tasks of mise";
    instructs(Dir) => ".config/mise": "mise runs the tools and hooks named in it";
    instructs(File) => ".tool-versions": "a version manager runs the tools named in it";
    instructs(File) => "devbox.json" "flake.nix" "shell.nix":
        "its development shell runs the programs named in it";
    instructs(File) => ".pylintrc" "pylintrc" ".pylintrc.toml" "pylintrc.toml":
        "the checker of the editor runs the code named in it";
    instructs(File) => ".rubocop.yml": "the checker of the editor loads the code named in it";
    instructs(File) => ".yardopts": "the language server loads the code named in it";
    instructs(File) => ".rspec": "the test runner loads the code named in it";
    instructs(Dir) => ".mvn": "Maven loads the extensions named in it";
    instructs(File) => ".jvmopts" ".sbtopts": "sets options of every sbt run";
    instructs(File) => "startup.m": "runs in every MATLAB session";
    instructs(File) => ".pre-commit-config.yaml" "prek.toml" "hk.pkl" "lefthook.*" ".lefthook.*"
        "lefthook-local.*" ".lefthook-local.*" ".config/lefthook.yml": "a hook runs the programs named in it";
    instructs(Dir) => ".lefthook": "a hook runs the programs in it";
    instructs(File) => ".lintstagedrc*" "lint-staged.config.*" ".overcommit.yml":
        "a hook runs the programs named in it";
    instructs(Dir) => ".git-hooks": "a hook runs the programs in it";
    instructs(File) => ".huskyrc*" ".simple-git-hooks.*" "simple-git-hooks.*":
        "a hook runs the programs named in it";
    instructs(File) => "commitlint.config.*" ".commitlintrc*": "runs in a hook";
};

/// In every repository at any depth of a writable grant.
pub const NESTED_READ_ONLY: &[(&str, &str)] = paths! {
    ".git/hooks": "git runs the hooks in it";
    ".git/config" ".git/config.worktree": "git runs the programs named in it";
    ".git/commondir": "redirects git to other configuration and hooks";
    ".git/lazygit.yml": "lazygit runs the programs named in it";
    ".git/remotes" ".git/branches": "sets where git fetches from";
    "_darcs/prefs/defaults": "Darcs runs the programs named in it";
    ".pijul/config": "Pijul runs the programs named in it";
    ".hg/hgrc": "Mercurial runs the programs named in it";
    ".jj/repo/config.toml": "Jujutsu runs the programs named in it";
    ".sl/config": "Sapling runs the programs named in it";
};

/// Directories of other version control systems, and the files in them that name programs.
pub const OTHER_REPOSITORIES: &[(&str, &[&str])] = &[
    (".hg", &["hgrc", "hgrc-not-shared", "sharedpath"]),
    (".jj", &["repo/config.toml", "config.toml", "workspace-config.toml"]),
    (".sl", &["config", "hgrc", "sharedpath"]),
    ("_darcs", &["prefs/defaults"]),
    (".pijul", &["config"]),
];

/// A file in a git directory that a program obeys and git does not create, and directories in which it obeys every entry.
pub const GIT_OBEYED: (&str, [&str; 2]) = ("lazygit.yml", ["remotes", "branches"]);

/// What is done with a file of a repository that a run changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhenChanged {
    SetAside,
    /// A cache, which git makes again.
    Removed,
    Told,
}

/// Files of a repository that git obeys besides its objects, refs and the files above, by gitrepository-layout(5).
pub const GIT_OBEYS: &[(&str, WhenChanged, &str)] = &[
    ("refs/replace", WhenChanged::SetAside, "replaces one object with another"),
    ("info/grafts", WhenChanged::SetAside, "replaces the parents of commits"),
    ("objects/info/commit-graph", WhenChanged::Removed, "replaces the trees and parents of commits"),
    ("objects/info/commit-graphs", WhenChanged::Removed, "replaces the trees and parents of commits"),
    ("shallow", WhenChanged::Told, "hides the parents of commits"),
    ("objects/info/alternates", WhenChanged::Told, "takes objects from elsewhere"),
    ("info/attributes", WhenChanged::Told, "chooses which configured filters git runs"),
];

/// Readable by everybody: programs, libraries, and the parts of `/etc` and `/var` that programs need.
pub const SYSTEM_READ: &[&str] = texts! {
    "/usr" "/bin" "/sbin" "/lib" "/lib32" "/lib64" "/libx32" "/opt" "/etc/ImageMagick-6" "/etc/ImageMagick-7"
    "/etc/R" "/etc/alternatives" "/etc/bash.bashrc" "/etc/ca-certificates" "/etc/chromium.d"
    "/etc/debian_version" "/etc/default/locale" "/etc/dictionaries-common" "/etc/emacs" "/etc/fish"
    "/etc/fonts" "/etc/gai.conf" "/etc/groff" "/etc/group" "/etc/host.conf" "/etc/hosts" "/etc/inputrc"
    "/etc/java" "/etc/java-11-openjdk" "/etc/java-17-openjdk" "/etc/java-21-openjdk" "/etc/java-25-openjdk"
    "/etc/java-8-openjdk" "/etc/ld.so.cache" "/etc/ld.so.conf" "/etc/ld.so.conf.d" "/etc/locale.alias"
    "/etc/locale.conf" "/etc/localtime" "/etc/magic" "/etc/manpath.config" "/etc/maven/logging"
    "/etc/maven/m2.conf" "/etc/mime.types" "/etc/nanorc" "/etc/nsswitch.conf" "/etc/os-release" "/etc/passwd"
    "/etc/php" "/etc/pki/ca-trust" "/etc/pki/tls" "/etc/profile" "/etc/profile.d" "/etc/protocols"
    "/etc/quilt.quiltrc" "/etc/resolv.conf" "/etc/services" "/etc/shells" "/etc/ssl/certs"
    "/etc/ssl/openssl.cnf" "/etc/terminfo" "/etc/texmf" "/etc/timezone" "/etc/vim" "/etc/zsh"
    "/var/cache/dictionaries-common" "/var/lib/aspell"
    // The list of installed packages, without which packages cannot be built.
    "/var/lib/dpkg"
    "/var/lib/gems" "/var/lib/texmf"
};

/// Public facts about the machine, read-only: some programs do not start without them.
pub const MACHINE: &[&str] = &["/sys/devices/system", "/sys/kernel/mm/transparent_hugepage"];

/// Every sandbox has its own of these: reading and writing them touches nothing of the host.
pub const PRIVATE: &[&str] = texts! {
    "/tmp" "/var/tmp" "/proc" "/dev/null" "/dev/zero" "/dev/full" "/dev/random" "/dev/urandom" "/dev/tty"
    "/dev/pts" "/dev/shm" "/dev/fd" "/dev/stdin" "/dev/stdout" "/dev/stderr"
};

/// Below the home directory, the files of agentsh itself.
pub const OWN_DIRECTORIES: [&str; 3] = [".config/agentsh", ".local/state/agentsh", ".local/share/agentsh"];

/// Secrets, and files that decide about every sandbox: a process inside may ask for them, but no message advises
/// granting them.
#[must_use]
pub fn is_never_offered(path: &Path, home: &Path, state: &Path) -> bool {
    let masked = HOME_MASKS.iter().map(|(mask, _)| *mask).chain(OWN_DIRECTORIES);
    path.starts_with(state)
        || path.strip_prefix(home).is_ok_and(|below| masked.into_iter().any(|mask| below.starts_with(mask)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn suggestions_exclude_keys_and_agentsh_files() {
        let is_never =
            |path: &str| is_never_offered(Path::new(path), Path::new("/home/u"), Path::new("/var/state"));
        for path in [".ssh/id_ed25519", ".local/share/agentsh/x", ".config/agentsh/policy.yaml"] {
            assert!(is_never(&format!("/home/u/{path}")), "{path}");
        }
        assert!(is_never("/var/state/review") && !is_never("/home/u/p/.git/config"));
    }

    #[test]
    fn built_in_paths_are_normalised_and_unique() {
        let home = HOME_MASKS.iter().chain(HOME_READ_ONLY).map(|(path, why)| (*path, *why));
        let project = PROJECT_READ_ONLY.iter().map(|entry| (entry.path, entry.why));
        for table in [home.collect::<Vec<_>>(), project.collect::<Vec<_>>()] {
            let mut seen = BTreeSet::new();
            for (path, why) in table {
                assert!(!why.is_empty() && seen.insert(path), "{path}");
                assert!(
                    !path.starts_with('/') && !path.ends_with('/') && !path.contains(['?', '~']),
                    "{path}"
                );
                let (above, last) = path.rsplit_once('/').unwrap_or(("", path));
                assert!(!above.contains('*') && last.matches('*').count() <= 1, "{path}");
                assert!(
                    path.split('/').all(|part| !part.is_empty() && part != ".." && part != "."),
                    "{path}"
                );
            }
        }
        assert!(SYSTEM_READ.iter().chain(PRIVATE).all(|path| path.starts_with('/')));
    }
}
