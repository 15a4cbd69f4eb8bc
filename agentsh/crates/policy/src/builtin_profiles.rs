//! The built-in profiles: name and text.

use crate::texts::files;

pub const PROFILES: &[(&str, &str)] = files! { "servers/":
    "arxiv" "atlassian" "aws-documentation" "brave-search" "chroma" "chrome-devtools" "cloudflare" "context7"
    "duckduckgo" "everything" "exa" "fetch" "figma" "filesystem" "firecrawl" "git" "github" "gitlab"
    "google-maps" "mcp-remote" "memory" "mongodb" "mysql" "notion" "playwright" "postgres" "puppeteer"
    "qdrant" "redis" "sentry" "sequential-thinking" "slack" "sqlite" "stripe" "supabase" "tavily" "time"
};
