#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

use proptest::prelude::*;

use crate::values::{Kind, find};

fn ids(text: &str) -> Vec<&str> {
    find(text, 100)
        .into_iter()
        .filter(|entity| entity.kind == Kind::NationalId)
        .map(|entity| &text[entity.start..entity.end])
        .collect()
}

#[test]
fn national_ids_with_a_check_digit_are_found_anywhere() {
    for (text, value) in [
        ("his number CE 60 21 94 A was wrong", "CE 60 21 94 A"),
        ("(CE602194A)", "CE602194A"),
        ("la titular, 50231674L, firmó", "50231674L"),
        ("NIE Y3338121F", "Y3338121F"),
        ("2 91 03 75 116 027 45 est absente", "2 91 03 75 116 027 45"),
        ("291037511602745", "291037511602745"),
        ("证件 44030619870912002X，已核", "44030619870912002X"),
        ("no. 320102199206170018 filed", "320102199206170018"),
        ("AHV 756.4821.0375.13", "756.4821.0375.13"),
        ("fnr 14078534754", "14078534754"),
        ("93.05.18-223.61", "93.05.18-223.61"),
        ("asiakas 240683-519F soitti", "240683-519F"),
        ("asiakas 050304A423A soitti", "050304A423A"),
        ("901124-1527397 님", "901124-1527397"),
        ("CF BNCGLI84T52F205C", "BNCGLI84T52F205C"),
        ("CPF 286.445.190-50", "286.445.190-50"),
        ("S8127364B holds it", "S8127364B"),
    ] {
        assert_eq!(ids(text), [value], "{text}");
    }
}

#[test]
fn national_ids_of_plain_digits_need_a_label_near_by() {
    for (label, value) in [
        ("BSN", "246813507"),
        ("personnummer", "740319-4827"),
        ("Personnummer:", "19740319-4827"),
        ("PESEL", "85061279358"),
        ("T.C. Kimlik No", "38127460988"),
        ("Aadhaar", "483920175628"),
        ("CNP", "2870415334711"),
        ("CPR-nr.", "120576-2318"),
        ("NHS number", "4857203928"),
        ("SIN", "512 738 469"),
        ("TFN", "648 192 501"),
        ("NIF", "245918370"),
        ("isikukood", "48507134215"),
        ("Steuer-ID", "38275014969"),
        ("マイナンバー", "482016375920"),
        ("SSN", "528741963"),
        ("\"passport_no\": ", "C38172645"),
        ("Passport", "K4820193M"),
    ] {
        let text = format!("{label} {value} since May");
        assert_eq!(ids(&text), [value], "{text}");
        let alone = format!("we shipped {value} since May");
        assert_eq!(ids(&alone), [""; 0], "{alone}");
    }
}

#[test]
fn plain_numbers_are_no_national_ids() {
    for text in [
        "created 1763849123457 and 1701230912284, in ms",
        "run 20241105-1234 of 2024-11-05T10:11:12Z",
        "order 241105-1234, invoice 20241105123456",
        "tel 0171 2345678 or 15551234567",
        "BUILD 20241105A of part AB123456Z",
        "commit 12345678a, 0123456789ABCDEF",
        "the absent 123456782 were counted",
        "personnummer must have 10 digits",
    ] {
        assert_eq!(ids(text), [""; 0], "{text}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1, ..ProptestConfig::default() })]
    /// At most one in three hundred random numbers is taken for an id, in a sample that is large enough.
    #[test]
    fn random_numbers_are_rarely_taken_for_national_ids(seed in any::<u64>()) {
        for length in 6..=19 {
            let mut state = seed | 1;
            let mut text = String::new();
            for _ in 0..30_000 {
                text.push(';');
                for at in 0..length {
                    state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                    let digit = (state >> 33) as u8 % 10;
                    text.push(char::from(b'0' + if at == 0 { digit.max(1) } else { digit }));
                }
            }
            let count = find(&text, 1_000_000).iter().filter(|entity| entity.kind == Kind::NationalId).count();
            prop_assert!(count <= 100, "{} of {} digits", count, length);
        }
    }
}
