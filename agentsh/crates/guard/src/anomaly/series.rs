//! A series of numbers of one tool: how far the next one is from the mean (exponentially weighted), and whether the
//! series drifts (Page-Hinkley against a fixed baseline).

use serde::{Deserialize, Serialize};

use crate::policy::AnomalyPolicy;

/// Values before the first finding.
const WARM_UP: u64 = 30;
/// The least standard deviation that is reckoned with: what never varies would otherwise be unusual at once.
const MIN_DEVIATION: f64 = 0.15;
/// Further out a value does not pull the mean, in standard deviations.
const MAX_PULL: f64 = 3.0;
/// Values of the baseline.
const BASELINE: u64 = 200;
const DELTA: f64 = 0.5;
/// Furthest that one value counts for a drift, in standard deviations.
const MAX_DRIFT: f64 = 4.0;

/// The policy's settings for series.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tuning {
    /// Weight of the newest value.
    pub alpha: f64,
    /// Standard deviations that are unusual.
    pub sigma: f64,
    /// Sum of deviations that is a drift.
    pub lambda: f64,
    /// A tool or a server is only looked at until then, in seconds since it was first called.
    pub learning_s: u64,
}

impl Tuning {
    #[must_use]
    pub fn of_policy(policy: &AnomalyPolicy) -> Self {
        Self {
            alpha: policy.alpha(),
            sigma: policy.sigma(),
            lambda: policy.drift(),
            learning_s: policy.learning_s(),
        }
    }
}

/// The state of a series, of constant size.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Series {
    seen: u64,
    mean: f64,
    variance: f64,
    baseline: u64,
    baseline_mean: f64,
    baseline_squares: f64,
    up: f64,
    down: f64,
}

/// How far the next value would deviate.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Deviation {
    /// In standard deviations, with its sign; 0 while too little is known.
    pub z: f64,
    pub drifts: bool,
}

impl Series {
    /// Looks at a value that is not taken in yet.
    #[must_use]
    pub fn deviation_of(&self, value: f64, tuning: &Tuning) -> Deviation {
        let z = if self.is_known() { (value - self.mean) / self.deviation() } else { 0.0 };
        let (up, down) = self.drift(value);
        Deviation { z, drifts: up > tuning.lambda || down > tuning.lambda }
    }

    /// Enough was seen of it to say something.
    #[must_use]
    pub fn is_known(&self) -> bool {
        self.seen >= WARM_UP
    }

    /// Takes a value in.
    pub fn take(&mut self, value: f64, tuning: &Tuning) {
        if !value.is_finite() {
            return;
        }
        let (up, down) = self.drift(value);
        if up > tuning.lambda || down > tuning.lambda {
            // A drift is reported once; then the baseline is learned again.
            (self.baseline, self.baseline_mean, self.baseline_squares) = (0, 0.0, 0.0);
            (self.up, self.down) = (0.0, 0.0);
        } else {
            (self.up, self.down) = (up, down);
        }
        if self.baseline < BASELINE {
            self.baseline += 1;
            let before = value - self.baseline_mean;
            self.baseline_mean += before / count(self.baseline);
            self.baseline_squares += before * (value - self.baseline_mean);
        }
        let pull = match self.seen < WARM_UP {
            true => value,
            false => {
                let most = MAX_PULL * self.deviation();
                value.clamp(self.mean - most, self.mean + most)
            }
        };
        let weight = tuning.alpha.max(1.0 / count(self.seen + 1));
        let away = pull - self.mean;
        self.mean += weight * away;
        self.variance = (1.0 - weight) * (self.variance + weight * away * away);
        self.seen += 1;
    }

    fn deviation(&self) -> f64 {
        self.variance.max(0.0).sqrt().max(MIN_DEVIATION)
    }

    /// Both sums with this value.
    fn drift(&self, value: f64) -> (f64, f64) {
        if self.baseline < BASELINE {
            return (0.0, 0.0);
        }
        let deviation = (self.baseline_squares / count(self.baseline - 1)).max(0.0).sqrt().max(MIN_DEVIATION);
        let z = ((value - self.baseline_mean) / deviation).clamp(-MAX_DRIFT, MAX_DRIFT);
        ((self.up + z - DELTA).max(0.0), (self.down - z - DELTA).max(0.0))
    }
}

/// Exact up to 2^52, which no count of calls reaches.
#[expect(clippy::cast_precision_loss, reason = "a count of calls")]
pub(super) fn count(number: u64) -> f64 {
    number as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tuning() -> Tuning {
        Tuning::of_policy(&AnomalyPolicy::default())
    }

    /// Noise that is the same in every run: roughly normal, from a linear congruence.
    struct Noise(u64);

    impl Noise {
        fn next(&mut self) -> f64 {
            let mut sum = 0.0;
            for _ in 0..12 {
                self.0 =
                    self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                sum += count(self.0 >> 33) / count(1 << 31);
            }
            sum - 6.0
        }
    }

    #[test]
    fn jump_in_a_series_is_an_outlier_and_noise_is_not() {
        let (mut series, mut noise, mut alarms) = (Series::default(), Noise(7), 0);
        for _ in 0..10_000 {
            let value = 6.0 + 0.8 * noise.next();
            alarms += u32::from(series.deviation_of(value, &tuning()).z.abs() > 4.0);
            series.take(value, &tuning());
        }
        assert!(alarms <= 20, "{alarms}");
        assert!(series.deviation_of(6.0 + 50_f64.ln(), &tuning()).z > 4.0);
    }

    #[test]
    fn slow_ramp_is_found_by_drift_and_a_constant_series_has_none() {
        let (mut series, mut noise) = (Series::default(), Noise(3));
        let mut still = 0;
        for _ in 0..5_000 {
            let value = 6.0 + 0.8 * noise.next();
            still += u32::from(series.deviation_of(value, &tuning()).drifts);
            series.take(value, &tuning());
        }
        assert!(still <= 1, "{still}");
        let mut found = None;
        for step in 0..400_u32 {
            let value = 6.0 + 0.8 * noise.next() + 0.02 * f64::from(step);
            if series.deviation_of(value, &tuning()).drifts {
                found = Some(step);
                break;
            }
            series.take(value, &tuning());
        }
        assert!(found.is_some_and(|step| step < 150), "{found:?}");
    }

    #[test]
    fn nan_and_infinity_do_not_change_a_series() {
        let mut series = Series::default();
        series.take(f64::NAN, &tuning());
        series.take(f64::INFINITY, &tuning());
        assert_eq!(series, Series::default());
    }
}
