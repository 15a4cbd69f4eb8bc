//! Paths that agentsh treats specially whatever a policy grants. The sandbox plan and `policy explain` read the same
//! tables. `unmask:` lifts an entry by its name.

use std::collections::HashSet;
use std::path::Path;
use std::sync::LazyLock;

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
const fn runs(path: &'static str, kind: Kind, why: &'static str) -> ProjectReadOnly {
    ProjectReadOnly { path, why, kind, tier: Tier::Runs, signs: &[], packages: &[] }
}

/// Runs by itself in a program that leaves these signs in the home directory.
const fn runs_in(
    path: &'static str,
    kind: Kind,
    signs: &'static [&'static str],
    why: &'static str,
) -> ProjectReadOnly {
    ProjectReadOnly { path, why, kind, tier: Tier::Runs, signs, packages: &[] }
}

/// Instructs or configures.
const fn instructs(path: &'static str, kind: Kind, why: &'static str) -> ProjectReadOnly {
    ProjectReadOnly { path, why, kind, tier: Tier::Instructs, signs: &[], packages: &[] }
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
const START_NOTHING: [&str; 22] = [
    ".DS_Store",
    ".cache",
    ".coverage",
    ".dockerignore",
    ".editorconfig",
    ".eslintcache",
    ".eslintignore",
    ".gitignore",
    ".gitkeep",
    ".mailmap",
    ".mypy_cache",
    ".next",
    ".node-version",
    ".npmignore",
    ".nvmrc",
    ".nyc_output",
    ".prettierignore",
    ".pytest_cache",
    ".python-version",
    ".ruby-version",
    ".ruff_cache",
    ".venv",
];

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
pub const HOME_MASKS: &[(&str, &str)] = &[
    (".ssh", "SSH keys"),
    (".gnupg", "GPG keys"),
    (".pki", "certificate keys"),
    (".age", "age keys"),
    (".config/sops", "age keys"),
    (".putty", "SSH keys"),
    (".aws", "AWS credentials"),
    (".azure", "Azure credentials"),
    (".config/gcloud", "Google Cloud credentials"),
    (".boto", "Google Cloud credentials"),
    (".oci", "Oracle Cloud credentials"),
    (".aliyun", "Alibaba Cloud credentials"),
    (".bluemix", "IBM Cloud credentials"),
    (".config/doctl", "DigitalOcean token"),
    (".config/hcloud", "Hetzner Cloud token"),
    (".config/scw", "Scaleway credentials"),
    (".config/linode-cli", "Linode token"),
    (".config/rclone", "cloud storage credentials"),
    (".s3cfg", "cloud storage credentials"),
    (".mc", "cloud storage credentials"),
    (".fly", "Fly.io token"),
    (".config/fly", "Fly.io token"),
    (".config/netlify", "Netlify token"),
    (".config/vercel", "Vercel token"),
    (".local/share/com.vercel.cli", "Vercel token"),
    (".config/heroku", "Heroku token"),
    (".config/stripe", "Stripe key"),
    (".wrangler", "Cloudflare token"),
    (".config/.wrangler", "Cloudflare token"),
    (".cloudflared", "Cloudflare tunnel credentials"),
    (".ngrok2", "ngrok token"),
    (".config/ngrok", "ngrok token"),
    (".kube", "Kubernetes credentials"),
    (".helm", "Helm registry credentials"),
    (".config/helm", "Helm registry credentials"),
    (".config/argocd", "Argo CD token"),
    (".docker", "container registry credentials and sockets"),
    (".config/containers", "container registry credentials"),
    (".local/share/containers", "container storage"),
    (".terraform.d", "Terraform token"),
    (".terraformrc", "Terraform token"),
    (".pulumi", "Pulumi token"),
    (".vault-token", "Vault token"),
    (".config/gh", "GitHub token"),
    (".config/hub", "GitHub token"),
    (".config/glab-cli", "GitLab token"),
    (".config/tea", "Gitea token"),
    (".git-credentials", "git passwords"),
    (".config/git/credentials", "git passwords"),
    (".gitcookies", "git passwords"),
    (".subversion/auth", "Subversion passwords"),
    (".hgrc", "Mercurial passwords"),
    (".netrc", "passwords"),
    ("_netrc", "passwords"),
    (".authinfo", "passwords"),
    (".authinfo.gpg", "passwords"),
    (".npmrc", "npm token"),
    (".yarnrc.yml", "npm token"),
    (".config/pnpm/auth.ini", "npm token"),
    (".pypirc", "PyPI token"),
    (".config/pip", "package index credentials"),
    (".pip", "package index credentials"),
    (".config/uv", "package index credentials"),
    (".local/share/uv/credentials", "package index credentials"),
    (".config/pypoetry/auth.toml", "PyPI token"),
    (".condarc", "Conda token"),
    (".cargo/credentials", "Cargo token"),
    (".cargo/credentials.toml", "Cargo token"),
    (".gem/credentials", "RubyGems token"),
    (".local/share/gem/credentials", "RubyGems token"),
    (".bundle/config", "gem source credentials"),
    (".composer/auth.json", "Packagist token"),
    (".config/composer/auth.json", "Packagist token"),
    (".m2/settings.xml", "Maven passwords"),
    (".m2/settings-security.xml", "Maven passwords"),
    (".gradle/gradle.properties", "Gradle passwords"),
    (".nuget/NuGet", "NuGet key"),
    (".hex", "Hex key"),
    (".pgpass", "database passwords"),
    (".my.cnf", "database passwords"),
    (".mylogin.cnf", "database passwords"),
    (".pg_service.conf", "database passwords"),
    (".rediscli_auth", "database passwords"),
    (".dbeaver", "database passwords"),
    (".local/share/DBeaverData", "database passwords"),
    (".config/mongodb", "database passwords"),
    (".snowflake", "database passwords"),
    (".snowsql", "database passwords"),
    (".databrickscfg", "Databricks token"),
    (".kaggle", "Kaggle key"),
    (".cache/huggingface/token", "Hugging Face token"),
    (".cache/huggingface/stored_tokens", "Hugging Face token"),
    (".huggingface", "Hugging Face token"),
    (".config/wandb", "Weights & Biases key"),
    (".password-store", "passwords"),
    (".config/op", "1Password session"),
    (".op", "1Password session"),
    (".1password", "1Password agent socket"),
    (".config/1Password", "1Password data"),
    (".config/Bitwarden", "Bitwarden data"),
    (".config/Bitwarden CLI", "Bitwarden session"),
    (".config/keepassxc", "KeePassXC data"),
    (".cache/keepassxc", "KeePassXC data"),
    (".lastpass", "LastPass data"),
    (".config/lastpass", "LastPass data"),
    (".local/share/keyrings", "desktop keyring"),
    (".local/share/kwalletd", "desktop keyring"),
    (".gnome2/keyrings", "desktop keyring"),
    (".local/share/gopass", "passwords"),
    (".config/gopass", "passwords"),
    (".mozilla", "browser profile"),
    (".config/mozilla", "browser profile"),
    (".cache/mozilla", "browser profile"),
    (".librewolf", "browser profile"),
    (".zen", "browser profile"),
    (".config/google-chrome", "browser profile"),
    (".config/google-chrome-beta", "browser profile"),
    (".config/google-chrome-unstable", "browser profile"),
    (".config/chromium", "browser profile"),
    (".config/BraveSoftware", "browser profile"),
    (".config/microsoft-edge", "browser profile"),
    (".config/opera", "browser profile"),
    (".config/vivaldi", "browser profile"),
    (".local/share/qutebrowser", "browser profile"),
    (".tor-browser", "browser profile"),
    (".local/share/torbrowser", "browser profile"),
    (".var/app", "data of desktop applications"),
    ("snap", "data of desktop applications"),
    (".thunderbird", "mail"),
    (".local/share/evolution", "mail"),
    (".config/evolution", "mail"),
    (".mutt", "mail passwords"),
    (".muttrc", "mail passwords"),
    (".msmtprc", "mail passwords"),
    (".mbsyncrc", "mail passwords"),
    (".offlineimaprc", "mail passwords"),
    (".config/Signal", "messages"),
    (".config/Slack", "messages and session"),
    (".config/discord", "messages and session"),
    (".config/Element", "messages and session"),
    (".local/share/TelegramDesktop", "messages and session"),
    (".bitcoin", "wallet"),
    (".ethereum", "wallet"),
    (".config/solana", "wallet"),
    (".electrum", "wallet"),
    (".config/Exodus", "wallet"),
    (".foundry/keystores", "wallet"),
    (".claude", "account and history of another agent"),
    (".claude.json", "account and history of another agent"),
    (".config/claude", "account and history of another agent"),
    (".config/Claude", "account and history of another agent"),
    (".codex", "account and history of another agent"),
    (".gemini", "account and history of another agent"),
    (".cursor", "account and history of another agent"),
    (".config/Cursor", "account and history of another agent"),
    (".config/github-copilot", "account of another agent"),
    (".copilot", "account of another agent"),
    (".aider.conf.yml", "keys of another agent"),
    (".continue", "keys of another agent"),
    (".codeium", "account of another agent"),
    (".config/goose", "keys of another agent"),
    (".config/opencode", "keys of another agent"),
    (".local/share/opencode", "account of another agent"),
    (".config/zed", "keys of another agent"),
    (".qwen", "account of another agent"),
    (".cline", "keys of another agent"),
    (".config/amp", "account of another agent"),
    (".local/share/amp", "account of another agent"),
    (".factory", "account of another agent"),
    (".kiro", "account of another agent"),
    (".config/cursor", "account of another agent"),
    (".local/share/cursor-agent", "account of another agent"),
    (".local/share/goose", "history of another agent"),
    (".local/state/goose", "history of another agent"),
    (".local/state/opencode", "history of another agent"),
    (".config/kilo", "keys of another agent"),
    (".kilocode", "keys of another agent"),
    (".roo", "keys of another agent"),
    (".augment", "account of another agent"),
    (".codebuddy", "account of another agent"),
    (".grok", "keys of another agent"),
    (".crush", "keys of another agent"),
    (".config/crush", "keys of another agent"),
    (".local/share/crush", "keys of another agent"),
    (".openhands", "keys of another agent"),
    (".aider.model.settings.yml", "keys of another agent"),
    (".aider", "keys of another agent"),
    (".config/io.datasette.llm", "keys of model providers"),
    (".config/windsurf", "account of another agent"),
    (".windsurf", "account of another agent"),
    (".wakatime.cfg", "WakaTime key"),
    (".config/openai", "OpenAI key"),
    (".config/anthropic", "Anthropic key"),
    (".config/Code/User/globalStorage", "editor accounts"),
    (".vscode-server/data/User/globalStorage", "editor accounts"),
    (".config/agentsh", "the policy in force"),
    (".local/state/agentsh", "the records of agentsh"),
    (".local/share/agentsh", "the records of agentsh"),
    (".bash_history", "shell history"),
    (".zsh_history", "shell history"),
    (".local/share/fish", "shell history"),
    (".history", "shell history"),
    (".python_history", "shell history"),
    (".node_repl_history", "shell history"),
    (".psql_history", "shell history"),
    (".mysql_history", "shell history"),
    (".sqlite_history", "shell history"),
    (".rediscli_history", "shell history"),
    (".local/share/atuin", "shell history"),
    (".Xauthority", "access to the display"),
    (".ICEauthority", "access to the display"),
    (".dbus", "access to the desktop session"),
    (".smbcredentials", "passwords"),
    (".krb5", "Kerberos tickets"),
    (".wireguard", "VPN keys"),
    (".config/openvpn", "VPN keys"),
    (".config/tailscale", "VPN keys"),
    (".config/remmina", "remote desktop passwords"),
    (".local/share/remmina", "remote desktop passwords"),
    (".config/filezilla", "server passwords"),
    (".ansible/vault", "Ansible vault passwords"),
    (".vault_pass", "Ansible vault passwords"),
    (".chef", "Chef keys"),
    (".env", "environment secrets"),
];

/// In the home directory, read-only even where the home is writable: what a shell, git or the desktop runs by
/// itself later, outside any sandbox.
pub const HOME_READ_ONLY: &[(&str, &str)] = &[
    (".bashrc", "runs in every shell"),
    (".bash_profile", "runs in every shell"),
    (".bash_login", "runs in every shell"),
    (".bash_logout", "runs in every shell"),
    (".bash_aliases", "runs in every shell"),
    (".profile", "runs in every shell"),
    (".zshrc", "runs in every shell"),
    (".zprofile", "runs in every shell"),
    (".zshenv", "runs in every shell"),
    (".zlogin", "runs in every shell"),
    (".zlogout", "runs in every shell"),
    (".oh-my-zsh", "runs in every shell"),
    (".config/zsh", "runs in every shell"),
    (".config/fish", "runs in every shell"),
    (".config/nushell", "runs in every shell"),
    (".kshrc", "runs in every shell"),
    (".cshrc", "runs in every shell"),
    (".tcshrc", "runs in every shell"),
    (".login", "runs in every shell"),
    (".inputrc", "binds keys to commands"),
    (".tmux.conf", "runs commands"),
    (".config/tmux", "runs commands"),
    (".screenrc", "runs commands"),
    (".gitconfig", "git runs the programs named in it"),
    (".config/git", "git runs the programs named in it"),
    (".ripgreprc", "ripgrep runs the programs named in it"),
    (".config/autostart", "starts with the desktop"),
    (".config/systemd", "starts with the session"),
    (".local/share/systemd", "starts with the session"),
    (".config/environment.d", "sets variables of the session"),
    (".pam_environment", "sets variables of the session"),
    (".config/plasma-workspace", "starts with the desktop"),
    (".local/share/applications", "starts from the desktop"),
    (".local/share/dbus-1", "starts on demand"),
    (".xinitrc", "starts with the desktop"),
    (".xprofile", "starts with the desktop"),
    (".xsession", "starts with the desktop"),
    (".xsessionrc", "starts with the desktop"),
    (".local/bin", "contains the user's commands"),
    ("bin", "contains the user's commands"),
    (".cargo/bin", "contains the user's commands"),
    (".cargo/config", "cargo runs the programs named in it"),
    (".cargo/config.toml", "cargo runs the programs named in it"),
    (".cargo/env", "runs in every shell"),
    (".rustup", "holds compilers"),
    ("go/bin", "contains the user's commands"),
    (".npm-global", "contains the user's commands"),
    (".nvm", "runs in every shell"),
    (".pyenv", "runs in every shell"),
    (".rbenv", "runs in every shell"),
    (".asdf", "runs in every shell"),
    (".local/share/mise", "runs in every shell"),
    (".config/mise", "runs in every shell"),
    (".config/direnv", "runs in every shell"),
    (".local/share/direnv", "decides which .envrc files run"),
    (".vimrc", "runs in the editor"),
    (".vim", "runs in the editor"),
    (".config/nvim", "runs in the editor"),
    (".emacs", "runs in the editor"),
    (".emacs.d", "runs in the editor"),
    (".config/emacs", "runs in the editor"),
    (".config/Code/User", "runs in the editor"),
    (".vscode", "runs in the editor"),
    (".gdbinit", "runs in the debugger"),
    (".lldbinit", "runs in the debugger"),
    (".psqlrc", "runs in the database client"),
    (".sqliterc", "runs in the database client"),
    (".irbrc", "runs in every Ruby console"),
    (".pythonrc", "runs in every Python console"),
    (".ipython", "runs in every Python console"),
    (".jupyter", "runs in every notebook"),
    (".Rprofile", "runs in every R session"),
    (".config/pip/pip.conf", "sets where packages come from"),
];

/// What git ignores in all repositories of a user; in the home.
pub const GIT_IGNORE: &str = ".config/git/ignore";

/// At the top of the project.
pub const PROJECT_READ_ONLY: &[ProjectReadOnly] = &[
    runs(".git/hooks", Kind::Dir, "git runs the hooks in it"),
    runs(".git/config", Kind::File, "git runs the programs named in it"),
    runs(".git/config.worktree", Kind::File, "git runs the programs named in it"),
    runs(".git/commondir", Kind::File, "redirects git to other configuration and hooks"),
    runs(".git/lazygit.yml", Kind::File, "lazygit runs the programs named in it"),
    runs(".hg/hgrc", Kind::File, "Mercurial runs the programs named in it"),
    runs(".hg/hgrc-not-shared", Kind::File, "Mercurial runs the programs named in it"),
    runs(".jj/repo/config.toml", Kind::File, "Jujutsu runs the programs named in it"),
    runs(".jj/config.toml", Kind::File, "Jujutsu runs the programs named in it"),
    runs(".jj/workspace-config.toml", Kind::File, "Jujutsu runs the programs named in it"),
    runs(".sl/config", Kind::File, "Sapling runs the programs named in it"),
    runs(".sl/hgrc", Kind::File, "Sapling runs the programs named in it"),
    runs("_darcs/prefs/defaults", Kind::File, "Darcs runs the programs named in it"),
    runs(".pijul/config", Kind::File, "Pijul runs the programs named in it"),
    runs(".mcp.json", Kind::File, "agents start the programs named in it"),
    runs_in(".claude", Kind::Dir, &[".claude"], "hooks and permissions of an agent"),
    runs(".codex", Kind::Dir, "settings of an agent"),
    runs(".gemini", Kind::Dir, "settings of an agent"),
    runs_in(".cursor", Kind::Dir, &[".cursor", ".config/Cursor"], "settings of an agent"),
    runs(".opencode", Kind::Dir, "settings of an agent"),
    runs_in(".continue", Kind::Dir, &[".continue"], "agents start the programs named in it"),
    runs_in(".roo", Kind::Dir, &[".roo"], "agents start the programs named in it"),
    runs_in(".windsurf", Kind::Dir, &[".codeium/windsurf", ".config/Windsurf"], "hooks of an agent"),
    runs_in(".kiro", Kind::Dir, &[".kiro"], "hooks of an agent"),
    runs_in(".amazonq", Kind::Dir, &[".aws/amazonq"], "agents start the programs named in it"),
    runs(".qwen", Kind::Dir, "settings of an agent"),
    runs_in(".trae", Kind::Dir, &[".trae", ".config/Trae"], "agents start the programs named in it"),
    runs(".augment", Kind::Dir, "agents start the programs named in it"),
    runs(".crush.json", Kind::File, "agents start the programs named in it"),
    runs("crush.json", Kind::File, "agents start the programs named in it"),
    runs(".goose", Kind::Dir, "agents start the programs named in it"),
    runs(".junie", Kind::Dir, "agents start the programs named in it"),
    runs(".factory", Kind::Dir, "hooks of an agent"),
    runs("opencode.json", Kind::File, "agents start the programs named in it"),
    runs("opencode.jsonc", Kind::File, "agents start the programs named in it"),
    runs(".opencode.json", Kind::File, "agents start the programs named in it"),
    runs(".kilocode", Kind::Dir, "agents start the programs named in it"),
    runs(".amp", Kind::Dir, "agents start the programs named in it"),
    runs(".iflow", Kind::Dir, "hooks of an agent"),
    runs(".llxprt", Kind::Dir, "agents start the programs named in it"),
    runs(".codebuddy", Kind::Dir, "hooks of an agent"),
    runs(".github/hooks", Kind::Dir, "hooks of an agent"),
    runs(".clinerules/hooks", Kind::Dir, "hooks of an agent"),
    runs(".openhands/hooks.json", Kind::File, "hooks of an agent"),
    runs(".openhands/setup.sh", Kind::File, "runs when an agent starts"),
    runs(".openhands/pre-commit.sh", Kind::File, "runs when an agent commits"),
    runs(".pi/extensions", Kind::Dir, "agents load the extensions in it"),
    runs(".repo/repo", Kind::Dir, "runs in every `repo` command"),
    runs(".aider.conf.yml", Kind::File, "agents run the programs named in it"),
    runs_in(
        ".vscode",
        Kind::Dir,
        &[".vscode", ".vscode-server", ".config/Code", ".config/VSCodium"],
        "the editor runs the tasks in it",
    ),
    runs(".idea", Kind::Dir, "the editor runs the tasks in it"),
    runs_in(".zed", Kind::Dir, &[".config/zed"], "the editor runs the tasks in it"),
    runs(".helix", Kind::Dir, "the editor starts the language servers named in it"),
    runs(".fleet", Kind::Dir, "the editor runs the tasks in it"),
    runs(".nova", Kind::Dir, "the editor runs the tasks in it"),
    runs(".run", Kind::Dir, "the editor runs the tasks in it"),
    runs(".vs", Kind::Dir, "the editor runs the tasks in it"),
    runs(".theia", Kind::Dir, "the editor runs the tasks in it"),
    runs(".lite_project.lua", Kind::File, "runs in the editor"),
    runs(".ycm_extra_conf.py", Kind::File, "runs in the editor"),
    runs("hie.yaml", Kind::File, "the language server runs the programs named in it"),
    runs(".merlin", Kind::File, "the language server runs the programs named in it"),
    runs(".latexmkrc", Kind::File, "runs in every latexmk run"),
    runs("latexmkrc", Kind::File, "runs in every latexmk run"),
    runs(".lsp/config.edn", Kind::File, "the language server runs the programs named in it"),
    runs(".lazygit.yml", Kind::File, "lazygit runs the programs named in it"),
    runs(".reviewboardrc", Kind::File, "runs in the client of Review Board"),
    runs(".chef/config.rb", Kind::File, "runs in every Chef command"),
    runs(".chef/knife.rb", Kind::File, "runs in every Chef command"),
    runs(".luarc.json", Kind::File, "the editor loads the plugins named in it"),
    runs(".luarc.jsonc", Kind::File, "the editor loads the plugins named in it"),
    runs(".solargraph.yml", Kind::File, "the editor loads the plugins named in it"),
    runs(".emacs.desktop", Kind::File, "runs in the editor"),
    runs("*.code-workspace", Kind::File, "the editor runs the tasks in it"),
    runs("*.sublime-project", Kind::File, "the editor runs the build systems in it"),
    runs("*.sublime-workspace", Kind::File, "the editor obeys the state in it"),
    runs(".exrc", Kind::File, "runs in the editor"),
    runs(".vimrc", Kind::File, "runs in the editor"),
    runs("_vimrc", Kind::File, "runs in the editor"),
    runs(".nvimrc", Kind::File, "runs in the editor"),
    runs(".nvim.lua", Kind::File, "runs in the editor"),
    runs(".vim", Kind::Dir, "runs in the editor"),
    runs(".lvimrc", Kind::File, "runs in the editor"),
    runs(".dir-locals.el", Kind::File, "runs in the editor"),
    runs(".dir-locals-2.el", Kind::File, "runs in the editor"),
    runs(".projectile", Kind::File, "the editor runs the commands named in it"),
    runs(".kakrc.local", Kind::File, "runs in the editor"),
    runs(".envrc", Kind::File, "runs in every shell that enters the directory"),
    // `layout python`, `go`, `ruby` and `perl` of direnv-stdlib(1).
    ProjectReadOnly {
        packages: &["python-", "go", "ruby", "perl5"],
        ..runs(
            ".direnv",
            Kind::Dir,
            "every shell that enters the directory uses the programs and settings in it",
        )
    },
    runs(".rvmrc", Kind::File, "runs in every shell that enters the directory"),
    runs(".autoenv.zsh", Kind::File, "runs in every shell that enters the directory"),
    runs(".autoenv", Kind::File, "runs in every shell that enters the directory"),
    runs(".husky", Kind::Dir, "git runs the hooks in it"),
    runs(".githooks", Kind::Dir, "git runs the hooks in it"),
    runs(".devcontainer", Kind::Dir, "the editor runs the commands in it"),
    runs(".devcontainer.json", Kind::File, "the editor runs the commands in it"),
    runs(".agentsh.yaml", Kind::File, "the policy of the project"),
    runs(".gdbinit", Kind::File, "runs in the debugger"),
    runs(".lldbinit", Kind::File, "runs in the debugger"),
    runs(".pdbrc", Kind::File, "runs in the debugger"),
    runs(".pdbrc.py", Kind::File, "runs in the debugger"),
    runs(".byebugrc", Kind::File, "runs in the debugger"),
    runs(".perldb", Kind::File, "runs in the debugger"),
    runs(".ocamlinit", Kind::File, "runs in every OCaml console"),
    runs("jupyter_*_config.py", Kind::File, "runs in every notebook server"),
    runs(".pryrc", Kind::File, "runs in every Ruby console"),
    runs(".irbrc", Kind::File, "runs in every Ruby console"),
    runs("irbrc", Kind::File, "runs in every Ruby console"),
    runs("_irbrc", Kind::File, "runs in every Ruby console"),
    runs("$irbrc", Kind::File, "runs in every Ruby console"),
    runs(".Rprofile", Kind::File, "runs in every R session"),
    runs(".RData", Kind::File, "every R session loads it"),
    runs(".Renviron", Kind::File, "sets variables of every R session"),
    runs(".pythonrc", Kind::File, "runs in every Python console"),
    runs(".iex.exs", Kind::File, "runs in every Elixir console"),
    runs(".ghci", Kind::File, "runs in every Haskell console"),
    runs(".erlang", Kind::File, "runs in every Erlang shell"),
    runs(".octaverc", Kind::File, "runs in every Octave session"),
    runs(".julia", Kind::Dir, "runs in every Julia session"),
    runs(".sqliterc", Kind::File, "runs in the database client"),
    runs(".psqlrc", Kind::File, "runs in the database client"),
    runs(".ripgreprc", Kind::File, "ripgrep runs the programs named in it"),
    // Everybody has git.
    ProjectReadOnly {
        signs: &["."],
        ..instructs(".gitmodules", Kind::File, "git fetches the repositories named in it")
    },
    instructs(".gitattributes", Kind::File, "chooses which configured filters git runs"),
    instructs("CVS", Kind::Dir, "CVS runs the programs named in it"),
    instructs("_MTN", Kind::Dir, "Monotone runs the programs named in it"),
    instructs("_FOSSIL_", Kind::File, "Fossil runs the programs named in it"),
    instructs(".bsp", Kind::Dir, "the editor starts the build server named in it"),
    instructs("CLAUDE.md", Kind::File, "instructions for agents"),
    instructs("CLAUDE.local.md", Kind::File, "instructions for agents"),
    instructs("AGENTS.md", Kind::File, "instructions for agents"),
    instructs("AGENTS.override.md", Kind::File, "instructions for agents"),
    instructs("GEMINI.md", Kind::File, "instructions for agents"),
    instructs("QWEN.md", Kind::File, "instructions for agents"),
    instructs("CONVENTIONS.md", Kind::File, "instructions for agents"),
    instructs("WARP.md", Kind::File, "instructions for agents"),
    instructs("CRUSH.md", Kind::File, "instructions for agents"),
    instructs(".cursorrules", Kind::File, "instructions for agents"),
    instructs(".windsurfrules", Kind::File, "instructions for agents"),
    instructs(".clinerules", Kind::Dir, "instructions for agents"),
    instructs(".roorules", Kind::File, "instructions for agents"),
    instructs(".goosehints", Kind::File, "instructions for agents"),
    instructs(".rules", Kind::File, "instructions for agents"),
    instructs(".github/copilot-instructions.md", Kind::File, "instructions for agents"),
    instructs(".github/instructions", Kind::Dir, "instructions for agents"),
    instructs(".github/workflows", Kind::Dir, "runs on the server that hosts the project"),
    instructs(".gitlab-ci.yml", Kind::File, "runs on the server that hosts the project"),
    instructs(".npmrc", Kind::File, "npm runs the programs named in it"),
    instructs(".yarn/plugins", Kind::Dir, "runs in yarn"),
    instructs(".yarn/releases", Kind::Dir, "runs in yarn"),
    instructs(".yarnrc", Kind::File, "yarn runs the programs named in it"),
    instructs(".yarnrc.yml", Kind::File, "yarn runs the programs named in it"),
    instructs(".pnpmfile.cjs", Kind::File, "runs in pnpm"),
    instructs(".pnpmfile.mjs", Kind::File, "runs in pnpm"),
    instructs("pnpm-workspace.yaml", Kind::File, "names programs and files that pnpm runs"),
    instructs("bunfig.toml", Kind::File, "configures bun"),
    instructs("pip.conf", Kind::File, "sets where packages come from"),
    instructs("uv.toml", Kind::File, "sets where packages come from"),
    instructs(".cargo/config", Kind::File, "cargo runs the programs named in it"),
    instructs(".cargo/config.toml", Kind::File, "cargo runs the programs named in it"),
    instructs("rust-toolchain", Kind::File, "cargo runs the compiler named in it"),
    instructs("rust-toolchain.toml", Kind::File, "cargo runs the compiler named in it"),
    instructs("mise.toml", Kind::File, "mise runs the tools and hooks named in it"),
    instructs(".mise.toml", Kind::File, "mise runs the tools and hooks named in it"),
    instructs("mise*.toml", Kind::File, "mise runs the tools and hooks named in it"),
    instructs(".mise*.toml", Kind::File, "mise runs the tools and hooks named in it"),
    instructs(".mise", Kind::Dir, "tasks of mise"),
    instructs("mise", Kind::Dir, "tasks of mise"),
    instructs(".config/mise", Kind::Dir, "mise runs the tools and hooks named in it"),
    instructs(".tool-versions", Kind::File, "a version manager runs the tools named in it"),
    instructs("devbox.json", Kind::File, "its development shell runs the programs named in it"),
    instructs("flake.nix", Kind::File, "its development shell runs the programs named in it"),
    instructs("shell.nix", Kind::File, "its development shell runs the programs named in it"),
    instructs(".pylintrc", Kind::File, "the checker of the editor runs the code named in it"),
    instructs("pylintrc", Kind::File, "the checker of the editor runs the code named in it"),
    instructs(".pylintrc.toml", Kind::File, "the checker of the editor runs the code named in it"),
    instructs("pylintrc.toml", Kind::File, "the checker of the editor runs the code named in it"),
    instructs(".rubocop.yml", Kind::File, "the checker of the editor loads the code named in it"),
    instructs(".yardopts", Kind::File, "the language server loads the code named in it"),
    instructs(".rspec", Kind::File, "the test runner loads the code named in it"),
    instructs(".mvn", Kind::Dir, "Maven loads the extensions named in it"),
    instructs(".jvmopts", Kind::File, "sets options of every sbt run"),
    instructs(".sbtopts", Kind::File, "sets options of every sbt run"),
    instructs("startup.m", Kind::File, "runs in every MATLAB session"),
    instructs(".pre-commit-config.yaml", Kind::File, "a hook runs the programs named in it"),
    instructs("prek.toml", Kind::File, "a hook runs the programs named in it"),
    instructs("hk.pkl", Kind::File, "a hook runs the programs named in it"),
    instructs("lefthook.*", Kind::File, "a hook runs the programs named in it"),
    instructs(".lefthook.*", Kind::File, "a hook runs the programs named in it"),
    instructs("lefthook-local.*", Kind::File, "a hook runs the programs named in it"),
    instructs(".lefthook-local.*", Kind::File, "a hook runs the programs named in it"),
    instructs(".config/lefthook.yml", Kind::File, "a hook runs the programs named in it"),
    instructs(".lefthook", Kind::Dir, "a hook runs the programs in it"),
    instructs(".lintstagedrc*", Kind::File, "a hook runs the programs named in it"),
    instructs("lint-staged.config.*", Kind::File, "a hook runs the programs named in it"),
    instructs(".overcommit.yml", Kind::File, "a hook runs the programs named in it"),
    instructs(".git-hooks", Kind::Dir, "a hook runs the programs in it"),
    instructs(".huskyrc*", Kind::File, "a hook runs the programs named in it"),
    instructs(".simple-git-hooks.*", Kind::File, "a hook runs the programs named in it"),
    instructs("simple-git-hooks.*", Kind::File, "a hook runs the programs named in it"),
    instructs("commitlint.config.*", Kind::File, "runs in a hook"),
    instructs(".commitlintrc*", Kind::File, "runs in a hook"),
];

/// In every repository at any depth of a writable grant.
pub const NESTED_READ_ONLY: &[(&str, &str)] = &[
    (".git/hooks", "git runs the hooks in it"),
    (".git/config", "git runs the programs named in it"),
    (".git/config.worktree", "git runs the programs named in it"),
    (".git/commondir", "redirects git to other configuration and hooks"),
    (".git/lazygit.yml", "lazygit runs the programs named in it"),
    (".git/remotes", "sets where git fetches from"),
    (".git/branches", "sets where git fetches from"),
    ("_darcs/prefs/defaults", "Darcs runs the programs named in it"),
    (".pijul/config", "Pijul runs the programs named in it"),
    (".hg/hgrc", "Mercurial runs the programs named in it"),
    (".jj/repo/config.toml", "Jujutsu runs the programs named in it"),
    (".sl/config", "Sapling runs the programs named in it"),
];

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
pub const SYSTEM_READ: &[&str] = &[
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/opt",
    "/etc/ImageMagick-6",
    "/etc/ImageMagick-7",
    "/etc/R",
    "/etc/alternatives",
    "/etc/bash.bashrc",
    "/etc/ca-certificates",
    "/etc/chromium.d",
    "/etc/debian_version",
    "/etc/default/locale",
    "/etc/dictionaries-common",
    "/etc/emacs",
    "/etc/fish",
    "/etc/fonts",
    "/etc/gai.conf",
    "/etc/groff",
    "/etc/group",
    "/etc/host.conf",
    "/etc/hosts",
    "/etc/inputrc",
    "/etc/java",
    "/etc/java-11-openjdk",
    "/etc/java-17-openjdk",
    "/etc/java-21-openjdk",
    "/etc/java-25-openjdk",
    "/etc/java-8-openjdk",
    "/etc/ld.so.cache",
    "/etc/ld.so.conf",
    "/etc/ld.so.conf.d",
    "/etc/locale.alias",
    "/etc/locale.conf",
    "/etc/localtime",
    "/etc/magic",
    "/etc/manpath.config",
    "/etc/maven/logging",
    "/etc/maven/m2.conf",
    "/etc/mime.types",
    "/etc/nanorc",
    "/etc/nsswitch.conf",
    "/etc/os-release",
    "/etc/passwd",
    "/etc/php",
    "/etc/pki/ca-trust",
    "/etc/pki/tls",
    "/etc/profile",
    "/etc/profile.d",
    "/etc/protocols",
    "/etc/quilt.quiltrc",
    "/etc/resolv.conf",
    "/etc/services",
    "/etc/shells",
    "/etc/ssl/certs",
    "/etc/ssl/openssl.cnf",
    "/etc/terminfo",
    "/etc/texmf",
    "/etc/timezone",
    "/etc/vim",
    "/etc/zsh",
    "/var/cache/dictionaries-common",
    "/var/lib/aspell",
    // The list of installed packages, without which packages cannot be built.
    "/var/lib/dpkg",
    "/var/lib/gems",
    "/var/lib/texmf",
];

/// Public facts about the machine, read-only: some programs do not start without them.
pub const MACHINE: &[&str] = &["/sys/devices/system", "/sys/kernel/mm/transparent_hugepage"];

/// Every sandbox has its own of these: reading and writing them touches nothing of the host.
pub const PRIVATE: &[&str] = &[
    "/tmp",
    "/var/tmp",
    "/proc",
    "/dev/null",
    "/dev/zero",
    "/dev/full",
    "/dev/random",
    "/dev/urandom",
    "/dev/tty",
    "/dev/pts",
    "/dev/shm",
    "/dev/fd",
    "/dev/stdin",
    "/dev/stdout",
    "/dev/stderr",
];

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
