//! The policy in force, questions about it, and what it would have done to a session.

use super::app::{Answer, App, Fields, Page};
use super::rows::refused_word;
use agentsh_authoring::explain::Explained;
use agentsh_authoring::{CommandContext, PolicySelection, replay};
use agentsh_base::types::ServerId;
use agentsh_policy::{Policy, Question};
use agentsh_store::StoreError;
use agentsh_web::{Effective, Part, Place, PolicyPreview, PolicyQuestion, Tone, Word};

/// Different things of a session that are tried.
const TRIED: usize = 500;

pub(super) async fn page(app: &App, query: &Fields) -> Answer {
    let session = query.text("session");
    let loaded = app.place.in_force().map_err(|error| error.render());
    let would_have = match (&loaded, session) {
        (_, "") => None,
        (Ok(policy), session) => {
            Some(would_have(app, policy, session.trim()).await.map_err(|error| error.to_string()))
        }
        (Err(_), _) => Some(Err("the policy cannot be read".to_owned())),
    };
    let asked = ask(query, &app.place).await;
    let effective = loaded.map(|policy| Effective {
        parts: policy
            .lines()
            .into_iter()
            .map(|line| Part { key: line.key, value: line.value, rule: line.rule.to_string() })
            .collect(),
        warnings: policy.warnings.iter().map(|w| format!("{}: {}", w.rule, w.value)).collect(),
        source: policy.source,
    });
    let page = agentsh_web::Policy { effective, asked, session: session.to_owned(), would_have };
    let waiting = app.waits().await;
    Ok(Page(agentsh_web::policy(&app.frame("Policy", Place::Policy, waiting, None), &page)))
}

async fn ask(query: &Fields, place: &CommandContext) -> PolicyQuestion {
    let [server, kind, about] = ["server", "kind", "about"].map(|name| query.text(name));
    let mut asked = PolicyQuestion {
        server: server.to_owned(),
        kind: kind.to_owned(),
        about: about.to_owned(),
        answer: None,
    };
    let about = about.trim();
    if about.is_empty() {
        return asked;
    }
    let server = Some(server.trim()).filter(|id| !id.is_empty()).map(|id| ServerId(id.to_owned()));
    asked.answer = Some(match question(kind, about, server) {
        Ok((from, question)) => {
            match Explained::of(&PolicySelection::in_force(), from, question, None, place).await {
                Ok(explained) => answer_words(&explained),
                Err(why) => (Word::new("no answer", Tone::Warn), vec![why.trim().to_owned()]),
            }
        }
        Err(why) => (Word::new("not a question", Tone::Warn), vec![why]),
    });
    asked
}

fn question(
    kind: &str,
    about: &str,
    server: Option<ServerId>,
) -> Result<(Option<ServerId>, Question), String> {
    let about_it = about.to_owned();
    let question = match kind {
        "connect" => agentsh_policy::connect(about)?,
        "read" => Question::Read(about_it),
        "write" => Question::Write(about_it),
        "exec" => Question::Exec(about_it),
        "env" if about.contains('=') => return Err(format!("'{about}' is not a variable name")),
        "env" => Question::Env(about_it),
        "tool" => {
            return match (agentsh_policy::tool(about), server) {
                (Some((named, question)), None) => Ok((Some(named), question)),
                (Some((named, question)), Some(server)) if named == server => Ok((Some(named), question)),
                (_, Some(server)) => Ok((Some(server), Question::Tool(about_it))),
                (None, None) => Err(format!("which server's tool is '{about}'? name the server too")),
            };
        }
        other => return Err(format!("'{other}' cannot be asked")),
    };
    Ok((server, question))
}

fn answer_words(explained: &Explained) -> (Word, Vec<String>) {
    let answer = &explained.answer;
    let word = if answer.allow { Word::new("allowed", Tone::Good) } else { Word::new("denied", Tone::Bad) };
    let said = answer.to_string();
    let mut lines: Vec<String> = said.lines().map(|line| line.trim().to_owned()).collect();
    lines.extend(explained.remarks());
    (word, lines)
}

/// Every tool and host of the session, asked of today's policy.
async fn would_have(app: &App, policy: &Policy, session: &str) -> Result<Vec<PolicyPreview>, StoreError> {
    let mut reader = app.reader().await?.ok_or(StoreError::NoSession)?;
    let id = reader.session(session).await?;
    let tally = reader.tally(id).await?;
    let context = app.place.context();
    let word = |passed: bool| if passed { Word::new("allowed", Tone::Good) } else { refused_word() };
    let mut list: Vec<PolicyPreview> = replay::replayed_items(&tally)
        .into_iter()
        .map(|one| {
            let answer = one.ask(policy, &context);
            PolicyPreview {
                server: one.server.map(|id| id.0),
                what: one.what,
                times: one.times,
                then: word(one.passed),
                now: word(answer.allow),
                rule: answer.rule.to_string(),
                differs: one.passed != answer.allow,
            }
        })
        .collect();
    list.sort_by_key(|one| !one.differs);
    list.truncate(TRIED);
    Ok(list)
}
