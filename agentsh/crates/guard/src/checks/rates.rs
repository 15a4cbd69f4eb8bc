//! `rate_limits`. They have their own switch and apply even if the lists are not enforced.

use std::collections::BTreeMap;

use crate::decision::{Check, Report, Subject, SubjectKind};
use crate::policy::{Rate, RateLimits, Ruled};
use crate::rate::Bucket;
use crate::types::ServerId;
use crate::verdict::{Outcome, Reason, Verdict};

#[derive(Clone, Debug)]
pub struct Rates {
    limits: RateLimits,
    buckets: BTreeMap<ServerId, Bucket>,
}

impl Rates {
    #[must_use]
    pub fn new(limits: &RateLimits) -> Self {
        Self { limits: limits.clone(), buckets: BTreeMap::new() }
    }
}

impl Check for Rates {
    fn judge(&mut self, subject: &Subject<'_>, report: &mut Report) {
        let (SubjectKind::Call { .. } | SubjectKind::ModelCall { .. }) = subject.matter else { return };
        if subject.is_promised {
            return;
        }
        let Some(limit) = rate_of(&self.limits, subject.server) else { return };
        let full = || Bucket::new(limit.value, subject.now);
        let bucket = self.buckets.entry(subject.server.clone()).or_insert_with(full);
        if let Err(retry_after) = bucket.take(subject.now) {
            report.rule(Verdict {
                outcome: Outcome::Block,
                reason: Reason::RateLimited,
                rule: limit.rule.clone(),
                retry_after,
            });
        }
    }
}

fn rate_of<'a>(limits: &'a RateLimits, server: &ServerId) -> Option<&'a Ruled<Rate>> {
    limits.per_server.get(server).or(limits.default.as_ref())
}
