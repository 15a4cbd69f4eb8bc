//! A session's use of its models, and its budgets.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use agentsh_base::dollars;
use agentsh_llm::Usage;
use agentsh_policy::Ruled;
use agentsh_policy::{Budget, LlmPolicy, Price};

const MINUTE: Duration = Duration::from_secs(60);
/// Maximum number of requests of one minute that are counted singly.
const MAX_REQUESTS: usize = 100_000;

/// The books of one session. Requests that are under way are not in them yet.
pub(super) struct Ledger {
    budgets: Vec<(Ruled<Budget>, BudgetUse)>,
    prices: Vec<Ruled<Price>>,
}

#[derive(Default)]
struct BudgetUse {
    tokens: u64,
    cost: u64,
    /// When requests came, and the tokens of their answers, of the last minute.
    minute: VecDeque<(Instant, u64)>,
}

/// The reason why a request is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct BudgetExhausted {
    pub why: String,
    /// The time until it may be tried again; None: not in this session.
    pub again: Option<Duration>,
}

impl Ledger {
    pub(super) fn new(policy: &LlmPolicy) -> Self {
        let budgets = policy.budgets.iter().map(|budget| (budget.clone(), BudgetUse::default())).collect();
        Self { budgets, prices: policy.prices.to_vec() }
    }

    fn price(&self, model: &str) -> Option<&Price> {
        self.prices.iter().map(|price| &price.value).find(|price| price.is_for(model))
    }

    /// In millionths of a dollar, rounded up; None: the price is unknown.
    fn cost(&self, model: &str, usage: Usage) -> Option<u64> {
        let price = self.price(model)?;
        let part = |tokens: u64, price: u64| u128::from(tokens) * u128::from(price);
        let sum = part(usage.input, price.input) + part(usage.output, price.output);
        Some(u64::try_from(sum.div_ceil(1_000_000)).unwrap_or(u64::MAX))
    }

    /// Counts a request, when every budget has room for it.
    pub(super) fn admit(&mut self, model: &str, now: Instant) -> Result<(), BudgetExhausted> {
        let has_price = self.price(model).is_some();
        for (budget, used) in self.budgets.iter_mut().filter(|(budget, _)| budget.value.is_for(model)) {
            used.forget(now);
            used.check(&budget.value, has_price, now).map_err(|spent| BudgetExhausted {
                why: format!("{}, by {}", spent.why, budget.rule),
                ..spent
            })?;
        }
        for (_, used) in self.budgets.iter_mut().filter(|(budget, _)| budget.value.is_for(model)) {
            used.minute.push_back((now, 0));
        }
        Ok(())
    }

    /// Adds the usage of an answer, and returns its cost.
    pub(super) fn book(&mut self, model: &str, usage: Usage, now: Instant) -> Option<u64> {
        let cost = self.cost(model, usage);
        let tokens = usage.input.saturating_add(usage.output);
        for (_, used) in self.budgets.iter_mut().filter(|(budget, _)| budget.value.is_for(model)) {
            used.tokens = used.tokens.saturating_add(tokens);
            used.cost = used.cost.saturating_add(cost.unwrap_or(0));
            used.forget(now);
            if let Some((_, last)) = used.minute.back_mut() {
                *last = last.saturating_add(tokens);
            } else {
                used.minute.push_back((now, tokens));
            }
        }
        cost
    }
}

impl BudgetUse {
    fn forget(&mut self, now: Instant) {
        while self.minute.front().is_some_and(|(at, _)| now.duration_since(*at) >= MINUTE)
            || self.minute.len() > MAX_REQUESTS
        {
            self.minute.pop_front();
        }
    }

    fn check(&self, budget: &Budget, has_price: bool, now: Instant) -> Result<(), BudgetExhausted> {
        let never = |why: String| Err(BudgetExhausted { why, again: None });
        if let Some(most) = budget.max_tokens.filter(|most| self.tokens >= *most) {
            return never(format!("this session has used {} of {most} tokens", self.tokens));
        }
        if let Some(most) = budget.max_cost {
            if !has_price {
                return never("this model has a budget in dollars, but no price in `llm.prices`".to_owned());
            }
            if self.cost >= most {
                return never(format!("this session has used {} of {}", dollars(self.cost), dollars(most)));
            }
        }
        let again = self.minute.front().map(|(at, _)| MINUTE.saturating_sub(now.duration_since(*at)));
        let requests = u64::try_from(self.minute.len()).unwrap_or(u64::MAX);
        if let Some(most) = budget.requests_per_minute.filter(|most| requests >= *most) {
            return Err(BudgetExhausted { why: format!("{most} requests a minute are allowed"), again });
        }
        let tokens = self.minute.iter().fold(0_u64, |sum, (_, tokens)| sum.saturating_add(*tokens));
        if let Some(most) = budget.tokens_per_minute.filter(|most| tokens >= *most) {
            return Err(BudgetExhausted { why: format!("{most} tokens a minute are allowed"), again });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

    use super::*;
    use agentsh_base::types::RuleRef;

    fn ledger(budget: Budget, prices: &[Price]) -> Ledger {
        let rule = RuleRef { id: "llm.budgets[0]".to_owned(), file: "p.yaml".to_owned(), line: 3 };
        let prices = prices.iter().cloned().map(|value| Ruled { value, rule: rule.clone() }).collect();
        Ledger { budgets: vec![(Ruled { value: budget, rule }, BudgetUse::default())], prices }
    }

    fn budget() -> Budget {
        Budget {
            model: "m*".to_owned(),
            max_tokens: None,
            max_cost: None,
            requests_per_minute: None,
            tokens_per_minute: None,
        }
    }

    #[test]
    fn token_budget_of_a_session_is_enforced() {
        let mut ledger = ledger(Budget { max_tokens: Some(100), ..budget() }, &[]);
        let now = Instant::now();
        ledger.admit("m1", now).unwrap();
        assert_eq!(ledger.book("m1", Usage { input: 60, output: 50 }, now), None);
        let spent = ledger.admit("m1", now).unwrap_err();
        assert!(spent.why.contains("110 of 100 tokens") && spent.why.contains("p.yaml:3"), "{spent:?}");
        assert_eq!(spent.again, None);
        ledger.admit("other", now).unwrap();
    }

    #[test]
    fn cost_budget_needs_a_price() {
        let budget = Budget { max_cost: Some(1_000_000), ..budget() };
        assert!(
            ledger(budget.clone(), &[]).admit("m", Instant::now()).unwrap_err().why.contains("llm.prices")
        );
        let price = Price { model: "*".to_owned(), input: 3_000_000, output: 15_000_000 };
        let mut ledger = ledger(budget, &[price]);
        let now = Instant::now();
        ledger.admit("m", now).unwrap();
        assert_eq!(ledger.book("m", Usage { input: 100_000, output: 50_000 }, now), Some(1_050_000));
        assert!(ledger.admit("m", now).unwrap_err().why.contains("$1.05 of $1.00"));
    }

    #[test]
    fn requests_per_minute_recover_after_a_minute() {
        let mut requests = ledger(Budget { requests_per_minute: Some(2), ..budget() }, &[]);
        let now = Instant::now();
        requests.admit("m", now).unwrap();
        requests.admit("m", now + Duration::from_secs(10)).unwrap();
        let spent = requests.admit("m", now + Duration::from_secs(20)).unwrap_err();
        assert_eq!(spent.again, Some(Duration::from_secs(40)));
        requests.admit("m", now + Duration::from_secs(61)).unwrap();
        let mut tokens = ledger(Budget { tokens_per_minute: Some(10), ..budget() }, &[]);
        tokens.admit("m", now).unwrap();
        tokens.book("m", Usage { input: 10, output: 5 }, now);
        assert!(tokens.admit("m", now + Duration::from_secs(5)).is_err());
        tokens.admit("m", now + Duration::from_secs(60)).unwrap();
    }
}
