//! Folds the results of all checks into one decision. Pure.

use crate::types::{RuleRef, ToolId};
use crate::verdict::{Outcome, Reason, Verdict};

use super::{Finding, Rewrite};

/// The results of the checks of one subject so far.
#[derive(Clone, Debug, Default)]
pub struct Report {
    verdicts: Vec<Verdict>,
    findings: Vec<Finding>,
    rewrites: Vec<Rewrite>,
    advisories: Vec<String>,
    displaced: Vec<ToolId>,
}

impl Report {
    /// Adds the verdict of a rule. If nothing is stricter, the first one is recorded.
    pub fn rule(&mut self, verdict: Verdict) {
        self.verdicts.push(verdict);
    }

    pub fn find(&mut self, finding: Finding) {
        self.findings.push(finding);
    }

    /// Changes what is recorded of the findings.
    pub fn edit_findings(&mut self, edit: impl FnMut(&mut Finding)) {
        self.findings.iter_mut().for_each(edit);
    }

    pub fn rewrite(&mut self, rewrites: impl IntoIterator<Item = Rewrite>) {
        self.rewrites.extend(rewrites);
    }

    /// Everything that another report says.
    pub fn absorb(&mut self, other: Self) {
        self.verdicts.extend(other.verdicts);
        self.findings.extend(other.findings);
        self.rewrites.extend(other.rewrites);
        self.advisories.extend(other.advisories);
        self.displaced.extend(other.displaced);
    }

    /// The replacements so far. A check that also replaces texts has to start from them.
    #[must_use]
    pub fn rewrites(&self) -> &[Rewrite] {
        &self.rewrites
    }

    /// A sentence that goes in front of a result which passes.
    pub fn advise(&mut self, sentence: String) {
        self.advisories.push(sentence);
    }

    /// A tool of another server that a listing may have shown, and that is blocked from now on.
    pub fn displace(&mut self, tool: ToolId) {
        self.displaced.push(tool);
    }

    #[must_use]
    pub fn is_blocked(&self) -> bool {
        let found = self.findings.iter().map(|finding| &finding.verdict);
        self.verdicts.iter().chain(found).any(Verdict::is_block)
    }

    /// The strictest outcome wins, of equal ones the first; every finding stays.
    pub fn fold(self) -> Decision {
        let mut decision = Decision {
            verdict: Verdict::new(Outcome::Allow, Reason::NoRule, RuleRef::default_rule("sandbox.mcp")),
            decided_by: None,
            findings: Vec::new(),
            rewrites: self.rewrites,
            advisories: self.advisories,
            displaced: self.displaced,
        };
        let mut verdicts = self.verdicts.into_iter();
        if let Some(first) = verdicts.next() {
            decision.verdict = first;
        }
        for verdict in verdicts {
            if verdict.outcome > decision.verdict.outcome {
                decision.verdict = verdict;
            }
        }
        self.findings.into_iter().for_each(|finding| decision.add(finding));
        decision
    }
}

/// What happens to one subject, why, and all findings.
#[derive(Clone, Debug)]
#[must_use]
pub struct Decision {
    pub verdict: Verdict,
    /// The finding that the verdict comes from. None: a rule.
    pub decided_by: Option<usize>,
    pub findings: Vec<Finding>,
    pub rewrites: Vec<Rewrite>,
    pub advisories: Vec<String>,
    /// Tools of other servers that a listing may have shown, and that are blocked from now on.
    pub displaced: Vec<ToolId>,
}

impl Decision {
    /// Takes in what was found later, such as by an auditor.
    pub fn add(&mut self, finding: Finding) {
        if finding.verdict.outcome > self.verdict.outcome {
            self.verdict = finding.verdict.clone();
            self.decided_by = Some(self.findings.len());
        }
        self.findings.push(finding);
    }

    /// Adds the verdict of a person or auditor. An answer to `Ask` replaces it; otherwise the stricter one stays.
    pub fn answer(&mut self, verdict: Verdict) {
        if self.verdict.outcome == Outcome::Ask || verdict.outcome > self.verdict.outcome {
            // A refused caller is still told what the question was about.
            let is_refused_question = self.verdict.outcome == Outcome::Ask && verdict.is_block();
            self.decided_by = self.decided_by.filter(|_| is_refused_question);
            self.verdict = verdict;
        }
    }

    /// No person can be asked: a question is a refusal.
    pub fn refuse_instead_of_asking(&mut self) {
        if self.is_ask() {
            self.answer(Verdict::new(Outcome::Block, Reason::NobodyToAsk, self.verdict.rule.clone()));
        }
    }

    /// Whether it is not passed on. A question without an answer is a refusal.
    #[must_use]
    pub fn is_block(&self) -> bool {
        self.verdict.outcome >= Outcome::Ask
    }

    /// Whether a person has to be asked first.
    #[must_use]
    pub fn is_ask(&self) -> bool {
        self.verdict.outcome == Outcome::Ask
    }

    /// The finding that decided.
    #[must_use]
    pub fn deciding_finding(&self) -> Option<&Finding> {
        self.findings.get(self.decided_by?)
    }

    /// A finding that did not stop the subject, as a clause.
    #[must_use]
    pub fn passed_finding(&self) -> Option<&str> {
        self.findings.first().map(|finding| finding.what.as_str())
    }
}
