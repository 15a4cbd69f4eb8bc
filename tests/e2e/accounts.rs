//! Agents that are signed in with an account and not with a key: the hosts of subscriptions, as scripted models behind TLS. The
//! providers themselves are never asked, so whether they take such a request is not shown here.

use base64::Engine;
use serde_json::{Value, json};

use crate::agents::{
    CLAUDE, CODEX, claude_environment, codex_server, insisting, project, trusts_the_session,
};
use crate::model::tls::Behind;
use crate::model::{anthropic, openai};
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

/// Codex with a ChatGPT account: its model is at another host and path than that of a key.
pub fn codex(starter: Starter) {
    let place = project(starter);
    place.write(&place.home.join(".codex/config.toml"), &codex_server());
    let account = json!({"OPENAI_API_KEY": null, "last_refresh": "2099-01-01T00:00:00Z", "tokens": {
        "id_token": token(), "access_token": token(), "refresh_token": "rt_test", "account_id": "acc-test"}});
    place.write(&place.home.join(".codex/auth.json"), &account.to_string());
    let model = openai::start(insisting());
    let run_agent = |behind: &Behind| {
        let authority = place.project.join("authority.pem");
        place.write(&authority, &behind.authority);
        let mut command = place.agentsh(["run", "--"].iter().chain(&CODEX));
        run(command.env("CODEX_CA_CERTIFICATE", authority))
    };
    trusts_the_session(&place, (&model, "chatgpt.com"), run_agent, openai::result);
}

/// A token that says what Codex reads out of it. Nobody checks its signature.
fn token() -> String {
    let encode = |value: &Value| base64::prelude::BASE64_URL_SAFE_NO_PAD.encode(value.to_string());
    let claims = json!({"exp": 4_102_444_800_u64, "email": "ada@example.com", "https://api.openai.com/auth": {
        "chatgpt_account_id": "acc-test", "chatgpt_plan_type": "pro", "chatgpt_user_id": "user-test"}});
    format!("{}.{}.c2ln", encode(&json!({"alg": "RS256", "typ": "JWT"})), encode(&claims))
}
