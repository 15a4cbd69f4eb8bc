//! `rate_limits`: how often tools are called.

use super::prelude::*;
use crate::model::{Rate, RateLimits};

const COUNT: Kind = Kind::Number(1, u32::MAX as u64);

const PER_SERVER: &[Key] = keys! {
    /// Calls per minute.
    "calls_per_minute": COUNT, default: "what `default_rpm` says";
    /// Maximum number of calls in a burst.
    "burst": COUNT, default: "what `default_burst` says";
};

table! {
    /// What one file writes.
    struct Rates with rule;

    /// Whether calls are limited.
    enabled: One<bool> = Kind::Flag, default: "false", example: "true";
    /// Calls per minute, for each server.
    default_rpm: One<u64> = COUNT, default: "100", example: "60";
    /// Maximum number of calls in a burst, for each server.
    default_burst: One<u64> = COUNT, default: "10", example: "10";
    /// Other limits for one server.
    per_server: Named<WrittenRate> = Kind::Names(&Kind::Map(PER_SERVER)), default: "none",
        example: "{search: {calls_per_minute: 6, burst: 1}}" => read of_server => show WrittenRate::shown;
}

impl Section<McpPolicy> for Rates {
    const KEYS: &'static [Key] = keys! {
        /// How often the tools of a server may be called. Holds whether or not `enforce_policy` is on.
        "rate_limits": Kind::Map(Self::TABLE);
    };

    fn read(reader: &mut Reader<'_>, fields: &Fields<'_>) -> Self {
        Table::read_at(reader, fields.find("rate_limits"))
    }

    fn merge(&self, below: &mut McpPolicy) {
        let Some(section) = &self.rule else { return };
        let limits = &mut below.rate_limits;
        let is_on = self.enabled.as_ref().map_or(limits.default.is_some(), |enabled| enabled.value);
        if !is_on {
            let ignored = self.enabled.is_none().then(|| section.clone());
            *limits =
                RateLimits { switched_off: ignored.or(limits.switched_off.take()), ..RateLimits::default() };
            return;
        }
        let written = self.default_rpm.as_ref().or(self.default_burst.as_ref());
        let own = WrittenRate::of(self.default_rpm.as_ref(), self.default_burst.as_ref());
        let value = own.over(limits.default.as_ref().map_or(DEFAULT, |default| default.value));
        let rule = match (written, limits.default.take()) {
            (Some(written), _) => written.rule.clone(),
            (None, Some(below)) => below.rule,
            (None, None) => section.clone(),
        };
        limits.default = Some(Ruled { value, rule });
        for (id, written) in &self.per_server {
            let id = ServerId(id.clone());
            let below = limits.per_server.get(&id).map_or(value, |below| below.value);
            let value = written.value.over(below);
            limits.per_server.insert(id, Ruled { value, rule: written.rule.clone() });
        }
        limits.switched_off = None;
    }

    /// Both rates hold: the lower of each number is in force.
    fn narrow(&self, base: &mut McpPolicy, narrowing: &mut Narrowing<'_>) {
        if self.rule.is_none() {
            return;
        }
        let base = &mut base.rate_limits;
        if let Some(enabled) = self.enabled.as_ref().filter(|enabled| !enabled.value)
            && base.default.is_some()
        {
            narrowing.refuse(&enabled.rule, "this file would switch off the limit of calls");
        }
        let mut alone = McpPolicy::default();
        alone.rate_limits.clone_from(base);
        Section::merge(self, &mut alone);
        let own = alone.rate_limits;
        if let (Some(wanted), Some(in_force)) = (&own.default, &base.default) {
            let higher = self.default_rpm.is_some()
                && wanted.value.calls_per_minute > in_force.value.calls_per_minute
                || self.default_burst.is_some() && wanted.value.burst > in_force.value.burst;
            if higher {
                narrowing.refuse(&wanted.rule, "this file would raise the limit of calls");
            }
        }
        for (id, wanted) in &own.per_server {
            if let Some(in_force) = rate_of(base, id)
                && (wanted.value.calls_per_minute > in_force.value.calls_per_minute
                    || wanted.value.burst > in_force.value.burst)
            {
                narrowing.refuse(&wanted.rule, format!("this file would raise the limit of calls to `{id}`"));
            }
        }
        let ids: Vec<ServerId> = base.per_server.keys().chain(own.per_server.keys()).cloned().collect();
        let mut per_server = BTreeMap::new();
        for id in ids {
            if let Some(rate) = lower(rate_of(base, &id), rate_of(&own, &id)) {
                per_server.insert(id, rate);
            }
        }
        let default = lower(base.default.as_ref(), own.default.as_ref());
        *base = RateLimits { default, per_server, switched_off: own.switched_off };
    }

    fn describe(policy: &McpPolicy, name: &str, lines: &mut Lines) {
        lines.list(&format!("{name}.rate_limits"), &policy.rate_limits.default, Rate::shown);
        for (id, limit) in &policy.rate_limits.per_server {
            lines.add(&format!("{name}.rate_limits.{id}"), limit.value.shown(), &limit.rule);
        }
    }

    fn warn(policy: &McpPolicy, warnings: &mut Vec<Ruled<String>>) {
        if let Some(rule) = &policy.rate_limits.switched_off {
            let value = "these limits have no effect without `enabled: true`".to_owned();
            warnings.push(Ruled { value, rule: rule.clone() });
        }
    }
}

/// The documented defaults.
const DEFAULT: Rate = Rate { calls_per_minute: 100, burst: 10 };

/// A rate as it is written; what is missing is as in the rate below.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct WrittenRate {
    calls_per_minute: Option<u32>,
    burst: Option<u32>,
}

fn of_server(reader: &mut Reader<'_>, here: &Here<'_>) -> Option<WrittenRate> {
    let entry = reader.map(here, PER_SERVER)?;
    let calls = reader.number(entry.find("calls_per_minute"), 1, u32::MAX.into());
    let burst = reader.number(entry.find("burst"), 1, u32::MAX.into());
    Some(WrittenRate::of(calls.as_ref(), burst.as_ref()))
}

impl WrittenRate {
    fn of(calls: Option<&Ruled<u64>>, burst: Option<&Ruled<u64>>) -> Self {
        let bounded = |number: &Ruled<u64>| u32::try_from(number.value).unwrap_or(u32::MAX);
        Self { calls_per_minute: calls.map(bounded), burst: burst.map(bounded) }
    }

    /// With what is missing from the rate below.
    fn over(self, below: Rate) -> Rate {
        Rate {
            calls_per_minute: self.calls_per_minute.unwrap_or(below.calls_per_minute),
            burst: self.burst.unwrap_or(below.burst),
        }
    }

    fn shown(&self) -> String {
        let number =
            |written: Option<u32>| written.map_or("the default".to_owned(), |written| written.to_string());
        format!("{} calls a minute, burst {}", number(self.calls_per_minute), number(self.burst))
    }
}

impl Rate {
    fn shown(&self) -> String {
        format!("{} calls a minute, burst {}", self.calls_per_minute, self.burst)
    }
}

fn rate_of<'r>(limits: &'r RateLimits, id: &ServerId) -> Option<&'r Ruled<Rate>> {
    limits.per_server.get(id).or(limits.default.as_ref())
}

fn lower(base: Option<&Ruled<Rate>>, own: Option<&Ruled<Rate>>) -> Option<Ruled<Rate>> {
    let (Some(base), Some(own)) = (base, own) else { return base.or(own).cloned() };
    let value = Rate {
        calls_per_minute: base.value.calls_per_minute.min(own.value.calls_per_minute),
        burst: base.value.burst.min(own.value.burst),
    };
    let rule = if value == base.value { base.rule.clone() } else { own.rule.clone() };
    Some(Ruled { value, rule })
}
