//! The base score of a CVSS 3 vector, by FIRST's formula.

use super::policy::Severity;

/// None if it is not a complete vector of version 3.
pub fn level_of(vector: &str) -> Option<Severity> {
    let vector = vector.strip_prefix("CVSS:3.0/").or_else(|| vector.strip_prefix("CVSS:3.1/"))?;
    let metric = |name: &str| vector.split('/').find_map(|part| part.strip_prefix(name)?.strip_prefix(':'));
    let changed = match metric("S")? {
        "U" => false,
        "C" => true,
        _ => return None,
    };
    let of = |name: &str, values: &[(&str, f64)]| {
        let written = metric(name)?;
        values.iter().find(|(word, _)| *word == written).map(|(_, value)| *value)
    };
    let vector = of("AV", &[("N", 0.85), ("A", 0.62), ("L", 0.55), ("P", 0.2)])?;
    let complexity = of("AC", &[("L", 0.77), ("H", 0.44)])?;
    let (low, high) = if changed { (0.68, 0.5) } else { (0.62, 0.27) };
    let privileges = of("PR", &[("N", 0.85), ("L", low), ("H", high)])?;
    let interaction = of("UI", &[("N", 0.85), ("R", 0.62)])?;
    let loss = |name: &str| of(name, &[("H", 0.56), ("L", 0.22), ("N", 0.0)]);
    let base = 1.0 - (1.0 - loss("C")?) * (1.0 - loss("I")?) * (1.0 - loss("A")?);
    let impact = match changed {
        false => 6.42 * base,
        true => 7.52 * (base - 0.029) - 3.25 * (base - 0.02).powi(15),
    };
    if impact <= 0.0 {
        return Some(Severity::Low);
    }
    let exploitability = 8.22 * vector * complexity * privileges * interaction;
    let factor = if changed { 1.08 } else { 1.0 };
    let score = (factor * (impact + exploitability)).min(10.0);
    // Rounds up to one digit.
    let score = (score * 10.0 - 1e-6).ceil() / 10.0;
    Some(match score {
        score if score >= 9.0 => Severity::Critical,
        score if score >= 7.0 => Severity::High,
        score if score >= 4.0 => Severity::Medium,
        _ => Severity::Low,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_vectors_have_their_published_levels() {
        for (vector, level) in [
            ("CVSS:3.1/AV:N/AC:L/PR:N/UI:N/S:U/C:H/I:H/A:H", Some(Severity::Critical)),
            ("CVSS:3.1/AV:N/AC:L/PR:N/UI:R/S:C/C:L/I:L/A:N", Some(Severity::Medium)),
            ("CVSS:3.0/AV:N/AC:L/PR:N/UI:N/S:U/C:N/I:N/A:H", Some(Severity::High)),
            ("CVSS:3.1/AV:L/AC:H/PR:H/UI:R/S:U/C:L/I:N/A:N", Some(Severity::Low)),
            ("CVSS:3.1/AV:N/AC:L/PR:N/UI:N/S:U/C:N/I:N/A:N", Some(Severity::Low)),
            ("CVSS:4.0/AV:N/AC:L/AT:N/PR:N/UI:N/VC:H/VI:H/VA:H/SC:N/SI:N/SA:N", None),
            ("CVSS:3.1/AV:N", None),
        ] {
            assert_eq!(level_of(vector), level, "{vector}");
        }
    }
}
