//! Sizes, CPU shares and durations as text.

/// `4GiB`, `512MiB`, `1g` (powers of 1024), `2GB` (powers of 1000) or plain bytes.
pub fn bytes(text: &str) -> Option<u64> {
    let (number, unit) = split(text)?;
    let factor: u64 = match unit.to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" | "ki" | "kib" => 1 << 10,
        "m" | "mi" | "mib" => 1 << 20,
        "g" | "gi" | "gib" => 1 << 30,
        "t" | "ti" | "tib" => 1 << 40,
        "kb" => 1_000,
        "mb" => 1_000_000,
        "gb" => 1_000_000_000,
        "tb" => 1_000_000_000_000,
        _ => return None,
    };
    number.checked_mul(factor)
}

/// `200%` is two processors.
pub fn percent(text: &str) -> Option<u64> {
    match split(text)? {
        (number, "%") => Some(number),
        _ => None,
    }
}

/// `30s`, `1h30m`, `250ms`: in milliseconds.
pub fn milliseconds(text: &str) -> Option<u64> {
    let mut rest = text;
    let mut total: u64 = 0;
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let (number, tail) = rest.split_at_checked(digits)?;
        let end = tail.find(|c: char| c.is_ascii_digit()).unwrap_or(tail.len());
        let (unit, next) = tail.split_at_checked(end)?;
        let factor = match unit {
            "ms" => 1,
            "s" => 1_000,
            "m" => 60_000,
            "h" => 3_600_000,
            _ => return None,
        };
        total = total.checked_add(number.parse::<u64>().ok()?.checked_mul(factor)?)?;
        rest = next;
    }
    Some(total)
}

/// Bytes as [`bytes`] reads them, in the largest unit that loses nothing.
pub fn show_bytes(value: u64) -> String {
    for (shift, unit) in [(40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")] {
        let size = 1_u64 << shift;
        if value >= size && value.is_multiple_of(size) {
            return format!("{}{unit}", value / size);
        }
    }
    value.to_string()
}

fn split(text: &str) -> Option<(u64, &str)> {
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (number, unit) = text.split_at_checked(digits)?;
    Some((number.parse().ok()?, unit.trim_start()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_parsed_with_units() {
        for (text, value) in [
            ("4GiB", Some(4 << 30)),
            ("512MiB", Some(512 << 20)),
            ("1g", Some(1 << 30)),
            ("2 GB", Some(2_000_000_000)),
            ("4096", Some(4096)),
            ("", None),
            ("GiB", None),
            ("-1", None),
            ("1.5g", None),
            ("99999999999t", None),
            ("1 elephant", None),
        ] {
            assert_eq!(bytes(text), value, "{text}");
        }
    }

    #[test]
    fn durations_are_parsed_with_units() {
        for (text, value) in [
            ("30s", Some(30_000)),
            ("1h30m", Some(5_400_000)),
            ("250ms", Some(250)),
            ("10", None),
            ("s", None),
            ("", None),
            ("5 s", None),
            ("99999999999999999999h", None),
        ] {
            assert_eq!(milliseconds(text), value, "{text}");
        }
    }

    proptest::proptest! {
        #[test]
        fn shown_size_reads_back_as_the_same_number(value: u64) {
            proptest::prop_assert_eq!(bytes(&show_bytes(value)), Some(value));
        }

        #[test]
        fn any_text_is_read_without_a_panic(text in ".{0,40}") {
            let _ = (bytes(&text), percent(&text), milliseconds(&text));
        }
    }
}
