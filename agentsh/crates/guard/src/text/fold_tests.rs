#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test may stop at the first surprise"
)]

use proptest::prelude::*;

use super::{Stream, fold};

const PLAIN: &str = "ordersheet4417quill";

#[test]
fn texts_that_read_the_same_fold_to_the_same() {
    for text in [
        "ordersheet4417quill",
        "Order-Sheet 4417: QUILL!",
        "o r d e r s h e e t 4 4 1 7 q u i l l",
        "o\u{200b}r\u{2060}d\u{fe0f}e\u{ad}r\u{202e}sheet\u{e0041}4417quill",
        "ｏｒｄｅｒｓｈｅｅｔ４４１７ｑｕｉｌｌ",
        "𝐨𝐫𝐝𝐞𝐫𝓼𝓱𝓮𝓮𝓽𝟜𝟜𝟙𝟟𝔮𝔲𝔦𝔩𝔩",
        "оrdеrѕhееt4417quіll",
        "órdêr\u{308}shéẽt 4417 qüíll",
        "ⓞⓡⓓⓔⓡⓢⓗⓔⓔⓣ④④①⑦🅠🅤🅘🅛🅛",
        "ᴏʀᴅᴇʀꜱʜᴇᴇᴛ4417QᴜɪʟL",
    ] {
        assert_eq!(fold(text).text, PLAIN, "{text}");
    }
}

#[test]
fn ligatures_and_other_scripts_keep_their_letters() {
    assert_eq!(fold("ﬁnance ㎏").text, "financekg");
    assert_eq!(fold("日本語、テキスト").text, fold("日本語 テキスト").text);
    assert!(fold("Пример текста").text.chars().count() == 12);
    assert_eq!(fold("\u{115f}\u{3164} \u{1f600}\u{fe0f}").text, "");
    // Composed and decomposed Hangul.
    assert_eq!(fold("한글").text, fold("\u{1112}\u{1161}\u{11ab}\u{1100}\u{1173}\u{11af}").text);
}

#[test]
fn leet_and_shifted_texts_meet_in_their_streams() {
    let leet = |text: &str| Stream::Leet.of(text, &fold(text));
    assert_eq!(leet("Th3 1aunch c0d3 $p1|l3d @t t3n"), leet("The launch code spilled at ten"));
    let shift = |text: &str| Stream::Shift.of(text, &fold(text));
    let plain = shift("The launch code 4417");
    assert_eq!(Stream::Shift.stable(&plain), Stream::Shift.stable(&shift("Gur ynhapu pbqr 4417")));
    // Atbash.
    assert_eq!(Stream::Shift.stable(&plain), Stream::Shift.stable(&shift("Gsv ozfmxs xlwv 4417")));
    assert_ne!(plain, shift("The lunch coda 4417"));
}

#[test]
fn a_place_in_the_fold_leads_back_to_the_original() {
    let original = "— “Oｒder”…  \u{200b}sheet; ".repeat(20) + "the ﬁnal word";
    let folded = fold(&original);
    let at = folded.text.find("finalw").unwrap();
    assert_eq!(&original[folded.original_range(&original, at..at + 6)], "ﬁnal w");
    let at = folded.text.find("ordersheet").unwrap();
    assert_eq!(&original[folded.original_range(&original, at..at + 10)], "Oｒder”…  \u{200b}sheet");
    let end = folded.text.len();
    assert_eq!(folded.original_range(&original, end..end + 5), original.len()..original.len());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn folding_is_stable_and_every_place_is_a_place(text in "\\PC{0,200}") {
        let folded = fold(&text);
        prop_assert_eq!(&fold(&folded.text).text, &folded.text);
        for at in 0..folded.text.len() {
            let place = folded.original_range(&text, at..at + 1);
            prop_assert!(text.get(place).is_some_and(|part| part.chars().count() == 1));
        }
    }

    #[test]
    fn parts_fold_as_the_whole(text in "[ -~éж\u{200b}日]{0,300}", cut in 0_usize..300) {
        let cut = text.floor_char_boundary(cut.min(text.len()));
        let parts = fold(&text[..cut]).text + &fold(&text[cut..]).text;
        prop_assert_eq!(parts, fold(&text).text);
    }
}
