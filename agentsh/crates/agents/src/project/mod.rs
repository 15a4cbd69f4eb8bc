//! Files of a project for agents: which ones agents obey (the table here), which keys are not allowed (`keys`), what
//! an agent without an adapter does not see (`mask`), and what would take effect by itself (`project_files`, `effects`).

mod effects;
mod keys;
mod mask;
mod project_files;

pub(super) use keys::remove_disallowed;
pub(super) use mask::{mask, mask_these};
pub use project_files::{ProjectAgentConfig, ProjectFile, scan_project};

/// An agent, and its files of a project. A path that ends in `/` is a directory.
struct KnownAgent {
    title: &'static str,
    /// Names of its program and package.
    names: &'static [&'static str],
    /// Files that name servers and programs that it starts, variables, and where its model is.
    starts: &'static [&'static str],
    /// Files that tell its model what to do.
    instructs: &'static [&'static str],
    /// Covered by [`mask`]; the others have an adapter that reads them.
    is_covered: bool,
}

const COVERED: KnownAgent =
    KnownAgent { title: "", names: &[], starts: &[], instructs: &[], is_covered: true };

const AGENTS: &[KnownAgent] = &[
    KnownAgent {
        title: "Claude Code",
        starts: &[
            ".mcp.json",
            ".claude/settings.json",
            ".claude/settings.local.json",
            ".claude/hooks/",
            ".claude/plugins/",
            ".claude-plugin/",
        ],
        instructs: &[
            "CLAUDE.md",
            "CLAUDE.local.md",
            ".claude/skills/",
            ".claude/commands/",
            ".claude/agents/",
            ".claude/rules/",
            ".claude/output-styles/",
        ],
        is_covered: false,
        ..COVERED
    },
    KnownAgent {
        title: "Codex",
        starts: &[".codex/config.toml", ".codex/hooks.json", ".codex/rules/", ".codex-plugin/"],
        instructs: &["AGENTS.md", "AGENTS.override.md", ".codex/prompts/", ".codex/skills/"],
        is_covered: false,
        ..COVERED
    },
    KnownAgent {
        title: "Gemini CLI",
        names: &["gemini", "gemini-cli"],
        starts: &[".gemini/settings.json", ".gemini/.env", ".gemini/extensions/"],
        instructs: &["GEMINI.md", ".gemini/commands/", ".gemini/agents/", ".gemini/skills/"],
        ..COVERED
    },
    KnownAgent {
        title: "Qwen Code",
        names: &["qwen", "qwen-code"],
        starts: &[".qwen/settings.json", ".qwen/.env", ".qwen/extensions/"],
        instructs: &["QWEN.md", ".qwen/commands/"],
        ..COVERED
    },
    KnownAgent {
        title: "OpenCode",
        names: &["opencode", "opencode-ai"],
        starts: &[
            "opencode.json",
            "opencode.jsonc",
            ".opencode/opencode.json",
            ".opencode/opencode.jsonc",
            ".opencode/plugin/",
            ".opencode/plugins/",
            ".opencode/tool/",
            ".opencode/tools/",
        ],
        instructs: &[
            ".opencode/agent/",
            ".opencode/agents/",
            ".opencode/command/",
            ".opencode/commands/",
            ".opencode/modes/",
            ".opencode/skills/",
        ],
        ..COVERED
    },
    KnownAgent {
        title: "Cursor",
        names: &["cursor-agent", "agent"],
        starts: &[".cursor/mcp.json", ".cursor/cli.json", ".cursor/hooks.json"],
        instructs: &[
            ".cursorrules",
            ".cursor/rules/",
            ".cursor/commands/",
            ".cursor/agents/",
            ".cursor/skills/",
        ],
        ..COVERED
    },
    KnownAgent {
        title: "Crush",
        names: &["crush"],
        starts: &["crush.json", ".crush.json"],
        instructs: &["CRUSH.md"],
        ..COVERED
    },
    KnownAgent {
        title: "goose",
        names: &["goose"],
        starts: &[".goose/"],
        instructs: &[".goosehints"],
        ..COVERED
    },
    KnownAgent {
        title: "Amp",
        names: &["amp"],
        starts: &[".amp/settings.json", ".amp/settings.jsonc", ".amp/plugins/"],
        ..COVERED
    },
    KnownAgent {
        title: "Amazon Q and Kiro",
        names: &["q", "kiro-cli"],
        starts: &[".amazonq/mcp.json", ".amazonq/cli-agents/", ".kiro/settings/mcp.json", ".kiro/agents/"],
        instructs: &[".amazonq/rules/", ".kiro/steering/"],
        ..COVERED
    },
    KnownAgent {
        title: "Droid",
        names: &["droid"],
        starts: &[".factory/mcp.json", ".factory/settings.json", ".factory/hooks.json"],
        instructs: &[".factory/commands/", ".factory/droids/"],
        ..COVERED
    },
    KnownAgent {
        title: "Copilot",
        names: &["copilot"],
        starts: &[".copilot/", ".github/copilot/", ".vscode/mcp.json"],
        instructs: &[
            ".github/copilot-instructions.md",
            ".github/instructions/",
            ".github/prompts/",
            ".github/agents/",
            ".github/chatmodes/",
            ".github/skills/",
        ],
        ..COVERED
    },
    KnownAgent { title: "Auggie", names: &["auggie"], starts: &[".augment/"], ..COVERED },
    KnownAgent { title: "Continue", names: &["cn", "continue"], starts: &[".continue/"], ..COVERED },
    KnownAgent {
        title: "Aider",
        names: &["aider"],
        starts: &[".aider.conf.yml", ".aider.model.settings.yml", ".aider.model.metadata.json"],
        instructs: &["CONVENTIONS.md"],
        ..COVERED
    },
    KnownAgent { title: "Vibe", names: &["vibe"], starts: &[".vibe/"], ..COVERED },
    KnownAgent { title: "Kimi", names: &["kimi"], starts: &[".kimi/"], ..COVERED },
    KnownAgent {
        title: "Cline and Roo",
        starts: &[".roo/mcp.json"],
        instructs: &[".clinerules", ".clinerules/", ".roorules", ".roo/rules/"],
        is_covered: false,
        ..COVERED
    },
    KnownAgent {
        title: "Windsurf",
        instructs: &[".windsurfrules", ".windsurf/rules/", ".windsurf/workflows/"],
        is_covered: false,
        ..COVERED
    },
    KnownAgent { title: "agents", instructs: &[".agents/", "WARP.md"], is_covered: false, ..COVERED },
];
