//! A vulnerability record in the OSV format, and whether it affects a version.

use std::cmp::Ordering;

use serde::Deserialize;
use serde_json::Value;

use super::policy::Severity;
use super::{Ecosystem, Package, cvss, level, shorten};

/// The parts of a record that are used. Unknown members are ignored, as the format requires.
#[derive(Clone, Debug, Deserialize)]
pub struct Record {
    pub id: String,
    #[serde(default)]
    pub aliases: Vec<String>,
    #[serde(default)]
    summary: String,
    #[serde(default)]
    details: String,
    #[serde(default)]
    modified: String,
    #[serde(default)]
    withdrawn: Option<String>,
    #[serde(default)]
    severity: Vec<Score>,
    #[serde(default)]
    affected: Vec<Affected>,
    #[serde(default)]
    database_specific: Value,
}

#[derive(Clone, Debug, Deserialize)]
struct Score {
    #[serde(default)]
    score: String,
}

#[derive(Clone, Debug, Deserialize)]
struct Affected {
    package: Option<Named>,
    #[serde(default)]
    ranges: Vec<Range>,
    #[serde(default)]
    versions: Vec<String>,
    #[serde(default)]
    severity: Vec<Score>,
}

#[derive(Clone, Debug, Deserialize)]
struct Named {
    ecosystem: String,
    name: String,
}

#[derive(Clone, Debug, Deserialize)]
struct Range {
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    events: Vec<Step>,
}

/// A version at which a range begins or ends. The format asks for exactly one of these.
#[derive(Clone, Debug, Default, Deserialize)]
struct Step {
    introduced: Option<String>,
    fixed: Option<String>,
    last_affected: Option<String>,
    limit: Option<String>,
}

impl Step {
    fn version(&self) -> Option<&str> {
        [&self.introduced, &self.fixed, &self.last_affected, &self.limit]
            .into_iter()
            .find_map(|version| version.as_deref())
    }
}

/// A version is affected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hit {
    pub fixed: Option<String>,
    /// A version could not be compared: it may be affected.
    pub is_unsure: bool,
}

impl Record {
    /// The time of the last change; None if the record does not say.
    pub(super) fn modified_at(&self) -> Option<jiff::Timestamp> {
        self.modified.parse().ok()
    }

    /// # Errors
    /// What is wrong with it.
    pub fn read(text: &str) -> Result<Self, String> {
        let record: Self = serde_json::from_str(text).map_err(|error| error.to_string())?;
        let is_id = |byte: u8| byte.is_ascii_graphic();
        if record.id.is_empty() || record.id.len() > 128 || !record.id.bytes().all(is_id) {
            return Err("its `id` is not valid".to_owned());
        }
        Ok(record)
    }

    /// The packages that it is about, without those of ecosystems that cannot run here.
    pub fn packages(&self) -> impl Iterator<Item = (Ecosystem, String)> {
        self.affected.iter().filter_map(|affected| {
            let named = affected.package.as_ref()?;
            let ecosystem = Ecosystem::of_osv(&named.ecosystem)?;
            Some((ecosystem, ecosystem.name(&named.name)))
        })
    }

    /// Whether this version of the package is affected. A record that was taken back is about none.
    #[must_use]
    pub fn hits(&self, package: &Package) -> Option<Hit> {
        if self.withdrawn.is_some() {
            return None;
        }
        self.affected.iter().filter_map(|affected| affected.hits(package)).min_by_key(|hit| hit.is_unsure)
    }

    /// The highest severity that it states; an advisory without a known one counts as medium.
    #[must_use]
    pub fn level(&self) -> Severity {
        // Malicious packages.
        if self.id.starts_with("MAL-") {
            return Severity::Critical;
        }
        let said = self.database_specific.get("severity").and_then(Value::as_str).and_then(level);
        let scores = self.severity.iter().chain(self.affected.iter().flat_map(|affected| &affected.severity));
        let scored = scores.filter_map(|score| cvss::level_of(&score.score));
        said.into_iter().chain(scored).max().unwrap_or(Severity::Medium)
    }

    #[must_use]
    pub fn summary(&self) -> String {
        shorten(if self.summary.is_empty() { &self.details } else { &self.summary })
    }
}

impl Affected {
    fn hits(&self, package: &Package) -> Option<Hit> {
        let named = self.package.as_ref()?;
        let ecosystem = Ecosystem::of_osv(&named.ecosystem)?;
        if ecosystem != package.ecosystem || ecosystem.name(&named.name) != package.name {
            return None;
        }
        let is_same = |listed: &String| {
            *listed == package.version || ecosystem.compare(listed, &package.version) == Some(Ordering::Equal)
        };
        if self.versions.iter().any(is_same) {
            let fixed = self.ranges.iter().find_map(|range| range.fixed_after(package));
            return Some(Hit { fixed, is_unsure: false });
        }
        // Commits of a repository say nothing about a version.
        let ranges = self.ranges.iter().filter(|range| range.kind != "GIT");
        ranges.filter_map(|range| range.hits(package)).min_by_key(|hit| hit.is_unsure)
    }
}

impl Range {
    /// The algorithm of the format's specification: events in the order of their versions, each turning it on or off.
    fn hits(&self, package: &Package) -> Option<Hit> {
        let ecosystem = package.ecosystem;
        let unsure = Some(Hit { fixed: None, is_unsure: true });
        let mut steps = Vec::new();
        for step in &self.events {
            let Some(version) = step.version() else { continue };
            // The version before all others, and the absent limit.
            let order = match version {
                "0" if step.introduced.is_some() => Ordering::Greater,
                "*" if step.limit.is_some() => continue,
                other => match ecosystem.compare(&package.version, other) {
                    Some(order) => order,
                    None => return unsure,
                },
            };
            steps.push((version, order, step));
        }
        let limits = || steps.iter().filter(|(_, _, step)| step.limit.is_some());
        if limits().next().is_some() && !limits().any(|(_, order, _)| order.is_lt()) {
            return None;
        }
        steps.sort_by(|(left, _, first), (right, _, second)| {
            let is_start = |version: &str, step: &Step| version == "0" && step.introduced.is_some();
            match (is_start(left, first), is_start(right, second)) {
                (true, true) => Ordering::Equal,
                (true, false) => Ordering::Less,
                (false, true) => Ordering::Greater,
                (false, false) => ecosystem.compare(left, right).unwrap_or(Ordering::Equal),
            }
        });
        let mut is_hit = false;
        for (_, order, step) in &steps {
            if step.introduced.is_some() && order.is_ge() {
                is_hit = true;
            }
            if step.fixed.is_some() && order.is_ge() || step.last_affected.is_some() && order.is_gt() {
                is_hit = false;
            }
        }
        is_hit.then(|| Hit { fixed: self.fixed_after(package), is_unsure: false })
    }

    /// The nearest version after this one that fixes it.
    fn fixed_after(&self, package: &Package) -> Option<String> {
        let ecosystem = package.ecosystem;
        let later = self
            .events
            .iter()
            .filter_map(|step| step.fixed.as_ref())
            .filter(|fixed| ecosystem.compare(fixed, &package.version).is_some_and(Ordering::is_gt));
        later.min_by(|left, right| ecosystem.compare(left, right).unwrap_or(Ordering::Equal)).cloned()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

    use serde_json::json;

    use super::*;

    fn record(affected: &Value) -> Record {
        let text = json!({"id": "GHSA-x", "modified": "2026-01-01T00:00:00Z", "affected": affected});
        Record::read(&text.to_string()).unwrap()
    }

    fn npm(events: &Value) -> Record {
        record(&json!([{"package": {"ecosystem": "npm", "name": "left"},
            "ranges": [{"type": "SEMVER", "events": events}]}]))
    }

    fn is_hit(record: &Record, ecosystem: Ecosystem, name: &str, version: &str) -> bool {
        record.hits(&Package::new(ecosystem, name, version)).is_some_and(|hit| !hit.is_unsure)
    }

    #[test]
    fn version_range_ends_at_its_limit() {
        let left = |record: &Record, version: &str| is_hit(record, Ecosystem::Npm, "left", version);
        let two = npm(
            &json!([{"introduced": "2.0.0"}, {"fixed": "2.3.1"}, {"introduced": "0"}, {"fixed": "1.4.0"}]),
        );
        for (version, hit) in [
            ("0.0.1", true),
            ("1.4.0-rc.1", true),
            ("1.4.0", false),
            ("2.0.0", true),
            ("2.3.0", true),
            ("2.3.1", false),
        ] {
            assert_eq!(left(&two, version), hit, "{version}");
        }
        assert_eq!(two.hits(&Package::new(Ecosystem::Npm, "left", "1.0.0")).unwrap().fixed.unwrap(), "1.4.0");
        let last = npm(&json!([{"introduced": "1.0.0"}, {"last_affected": "1.5.0"}]));
        assert!(left(&last, "1.5.0") && !left(&last, "1.5.1") && !left(&last, "0.9.0"));
        let limit = npm(&json!([{"introduced": "0"}, {"limit": "2.0.0"}]));
        assert!(left(&limit, "1.9.9") && !left(&limit, "2.0.0"));
        assert!(!is_hit(&two, Ecosystem::Npm, "right", "1.0.0"));
        assert!(!is_hit(&two, Ecosystem::Pypi, "left", "1.0.0"));
    }

    #[test]
    fn listed_versions_count_in_addition_to_ranges() {
        let python = record(
            &json!([{"package": {"ecosystem": "PyPI", "name": "My_Server"}, "versions": ["1.0", "1.1rc1"],
            "ranges": [{"type": "ECOSYSTEM", "events": [{"introduced": "2.0a1"}, {"fixed": "2.0.post1"}]},
                {"type": "GIT", "events": [{"introduced": "0"}]}]}]),
        );
        let hit = |version: &str| is_hit(&python, Ecosystem::Pypi, "my-server", version);
        assert!(hit("1.0.0") && hit("1.1rc1") && hit("2.0") && hit("2.0b3"));
        assert!(!hit("1.1") && !hit("2.0.post1") && !hit("2.0.dev1"));
    }

    #[test]
    fn version_that_cannot_be_compared_is_an_unsure_hit() {
        let odd = npm(&json!([{"introduced": "0"}, {"fixed": "1.0.0"}]));
        let hit = odd.hits(&Package::new(Ecosystem::Npm, "left", "next")).unwrap();
        assert!(hit.is_unsure);
    }

    #[test]
    fn withdrawn_record_affects_no_package() {
        let text = json!({"id": "X-1", "withdrawn": "2026-02-01T00:00:00Z", "affected": [
            {"package": {"ecosystem": "npm", "name": "left"}, "versions": ["1.0.0"]}]});
        let record = Record::read(&text.to_string()).unwrap();
        assert!(!is_hit(&record, Ecosystem::Npm, "left", "1.0.0"));
    }

    #[test]
    fn severity_comes_from_the_record_and_is_medium_without_one() {
        let of = |extra: Value| {
            let mut record = json!({"id": "GHSA-x"});
            record.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
            Record::read(&record.to_string()).unwrap().level()
        };
        assert_eq!(of(json!({"database_specific": {"severity": "MODERATE"}})), Severity::Medium);
        assert_eq!(of(json!({"id": "MAL-2026-1"})), Severity::Critical);
        let score = json!({"severity": [{"type": "CVSS_V3", "score": "CVSS:3.1/AV:N/AC:L/PR:N/UI:N/S:U/C:H/I:H/A:H"}]});
        assert_eq!(of(score), Severity::Critical);
        assert_eq!(of(json!({})), Severity::Medium);
        for text in ["{}", "[]", "{\"id\": 5}", "{\"id\": \"a b\"}", "{\"id\": \"a\", \"affected\": 1}"] {
            assert!(Record::read(text).is_err(), "{text}");
        }
    }
}
