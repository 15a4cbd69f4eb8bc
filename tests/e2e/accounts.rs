//! An agent that is signed in with an account and not with a key, with a scripted model at its provider's name. The
//! provider itself is never asked, so whether it takes such a request is not shown here. Codex with a ChatGPT account
//! asks its provider where its workspace is before it asks a model, which no program here imitates.

use serde_json::json;

use crate::agents::{CLAUDE, claude_environment, insisting, project, trusts_the_session};
use crate::model::anthropic;
use crate::model::tls::Behind;
use crate::place::{Starter, run};

/// Claude Code's own file of a subscription: the token goes to the same host as a key.
pub fn claude(starter: Starter) {
    let place = project(starter);
    let account = json!({"claudeAiOauth": {"accessToken": "sk-ant-oat01-test", "refreshToken": "sk-ant-ort01-test",
        "expiresAt": 4_102_444_800_000_u64, "scopes": ["user:inference", "user:profile"], "subscriptionType": "max"}});
    place.write(&place.home.join(".claude/.credentials.json"), &account.to_string());
    let model = anthropic::start(insisting());
    let run_agent = |behind: &Behind| {
        let authority = place.project.join("authority.pem");
        place.write(&authority, &behind.authority);
        let mut command = place.agentsh(["run", "--"].iter().chain(&CLAUDE));
        claude_environment(&mut command, &model);
        command.env_remove("ANTHROPIC_BASE_URL").env_remove("ANTHROPIC_API_KEY");
        run(command.env("NODE_EXTRA_CA_CERTS", authority))
    };
    trusts_the_session(&place, (&model, "api.anthropic.com"), run_agent, anthropic::result);
}
