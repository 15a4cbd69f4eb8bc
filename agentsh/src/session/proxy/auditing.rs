//! Asks the auditors before a call is forwarded.

use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;

use tokio::sync::Semaphore;

use agentsh_auditor::{Audit as Said, AuditorName, Auditors};
use agentsh_base::types::ServerId;
use agentsh_guard::{Finding, Outcome, Reason, Severity, Verdict};
use agentsh_mcp::{Audit, AuditResult, Question};
use agentsh_policy::proxy_file::ProxyFile;
use agentsh_store::words::AuditVerdict;

use super::super::content::Content;
use super::super::run_error::RunError;
use agentsh_host::Facts;
use agentsh_host::outgoing;

/// Limit of concurrent audits; more wait.
const MAX_CONCURRENT_AUDITS: usize = 16;

/// The auditors of a file; None if it has none.
///
/// # Errors
/// A missing key, an invalid URL, or an unusable resolver.
pub fn of_file(
    facts: &Facts,
    file: &ProxyFile,
    content: &Rc<RefCell<Content>>,
) -> Result<Option<Rc<dyn Audit>>, RunError> {
    if file.auditors.is_empty() {
        return Ok(None);
    }
    let client = outgoing::client().map_err(RunError::Refused)?;
    let auditors = Auditors::of_file(file, &facts.context.env, client);
    let auditors = auditors.map_err(|error| RunError::Refused(error.to_string()))?;
    Ok(auditors.map(|auditors| {
        let asked = AuditQueue {
            auditors,
            content: Rc::clone(content),
            turns: Semaphore::new(MAX_CONCURRENT_AUDITS),
        };
        Rc::new(Auditing(Rc::new(asked))) as Rc<dyn Audit>
    }))
}

#[derive(Debug)]
struct Auditing(Rc<AuditQueue>);

#[derive(Debug)]
struct AuditQueue {
    auditors: Auditors,
    content: Rc<RefCell<Content>>,
    turns: Semaphore,
}

impl Audit for Auditing {
    fn ask(&self, call: &Question<'_>) -> Pin<Box<dyn Future<Output = AuditResult>>> {
        let length = call.arguments.map_or(0, |arguments| arguments.to_compact().len());
        let data = (length <= agentsh_auditor::MAX_ARGUMENTS)
            .then(|| agentsh_auditor::redacted_call(call.server, call.tool, call.arguments, call.finding));
        let (asked, server, tool) = (Rc::clone(&self.0), call.server.clone(), call.tool.to_owned());
        Box::pin(async move {
            let said = match data {
                Some(data) => {
                    let _turn = asked.turns.acquire().await;
                    asked.auditors.judge(&data).await
                }
                None => asked.auditors.too_long(),
            };
            asked.record_verdict(said, &server, &tool)
        })
    }
}

impl AuditQueue {
    fn record_verdict(&self, said: Said, server: &ServerId, tool: &str) -> AuditResult {
        let passes = self.auditors.allows_call(&said);
        let (word, by, reason, why) = match said {
            Said::Clean => return AuditResult { word: AuditVerdict::Clean, by: None, found: None },
            Said::Flagged { by, why } => (AuditVerdict::Flagged, by, Reason::AuditFlagged, why),
            Said::TimedOut { by } => (AuditVerdict::TimedOut, by, Reason::AuditTimedOut, String::new()),
            Said::Failed { by, why } => (AuditVerdict::Failed, by, Reason::AuditFailed, why),
        };
        let name = by.name.clone();
        let found = (!passes).then(|| {
            let mut content = self.content.borrow_mut();
            // A flag is an ordinary detection; without a verdict, `audit_timeout_action` decides.
            let outcome = if reason == Reason::AuditFlagged { content.outcome() } else { Outcome::Block };
            let found = exfiltration(outcome, reason, by, why, server);
            content.keep(&found, server, tool);
            found
        });
        AuditResult { word, by: Some(name), found }
    }
}

fn exfiltration(
    outcome: Outcome,
    reason: Reason,
    by: AuditorName,
    why: String,
    server: &ServerId,
) -> Finding {
    let (severity, what) = match reason {
        Reason::AuditFlagged => (Severity::High, format!("auditor {} flagged it: {why}", by.name)),
        Reason::AuditTimedOut => (Severity::Medium, format!("auditor {} did not answer in time", by.name)),
        _ => (Severity::Medium, format!("auditor {} gave no verdict: {why}", by.name)),
    };
    let found = Finding::new(Verdict::new(outcome, reason, by.rule), None, "auditor", severity, what);
    Finding { destination: Some(server.0.clone()), context: why, ..found }
}
