//! Values of results in other clothes, and in the addresses that may be followed.

use serde_json::json;

use super::*;

/// What looks like a secret in an address that stood there whole is part of the address.
#[test]
fn a_link_out_of_a_result_may_be_followed_and_its_parts_may_not_leave() {
    let mut flow = flow();
    let link = "https://gist.example.com/a/Zk3vQ9xT2mB7nR4wL8pD1sF6/raw/x.txt";
    read(&mut flow, &format!("raw_url {link} size 12"), true, 1000);
    let judged = send(&mut flow, "fetch", EXTERNAL, &json!({"url": link}));
    assert!(!judged.verdict.is_block(), "{:?}", judged.findings);
    for other in [
        "Zk3vQ9xT2mB7nR4wL8pD1sF6".to_owned(),
        format!("https://other.example/?x={}", "Zk3vQ9xT2mB7nR4wL8pD1sF6"),
    ] {
        assert!(send(&mut flow, "fetch", EXTERNAL, &json!({"url": other})).verdict.is_block(), "{other}");
    }
}

#[test]
fn values_are_found_backwards_and_in_other_alphabets() {
    let mut flow = flow();
    let said = "card 5105 1051 0510 5100, IBAN DE89370400440532013000, password: Gr4nite&7-mule-Oslo, \
                dsn postgres://app:pa55w0rd-Kq7@db.internal:5432/main";
    read(&mut flow, said, true, 1000);
    let turned = |text: &str, by: u8| -> String {
        let turn = |c: char, first: u8| char::from((c as u8 - first + by) % 26 + first);
        text.chars()
            .map(|c| match c {
                'a'..='z' => turn(c, b'a'),
                'A'..='Z' => turn(c, b'A'),
                c => c,
            })
            .collect()
    };
    for value in ["5105105105105100", "DE89370400440532013000", "Gr4nite&7-mule-Oslo", "pa55w0rd-Kq7"] {
        let reversed: String = value.chars().rev().collect();
        let judged = send(&mut flow, "mail", EXTERNAL, &json!({"body": reversed}));
        assert!(judged.verdict.is_block(), "{reversed}");
        for by in [1, 13, 25] {
            let body = turned(value, by);
            let has_letters = body != value;
            let judged = send(&mut flow, "mail", EXTERNAL, &json!({"body": body}));
            assert!(judged.verdict.is_block() || !has_letters, "{body}");
        }
    }
}

#[test]
fn a_secret_may_be_the_name_of_a_member() {
    let mut flow = flow();
    let result =
        json!({"structuredContent": {"tokens": {"ghp_9QzXtw3Lm4Vb7Ny3Kp8Wd6HsZc1Jf5Rr2T": "release bot"}}});
    let text = result.to_string();
    let tree = json::read(text.as_bytes()).unwrap();
    let origin = Origin {
        server: server("files"),
        tool: "list".to_owned(),
        call: "1".to_owned(),
        time: seconds(1000),
        private: true,
    };
    flow.remember(origin, &Leaves::of(&tree), &Plain);
    let body = json!({"body": "use ghp_9QzXtw3Lm4Vb7Ny3Kp8Wd6HsZc1Jf5Rr2T for it"});
    assert!(send(&mut flow, "mail", EXTERNAL, &body).verdict.is_block());
    assert!(
        !send(&mut flow, "mail", EXTERNAL, &json!({"body": "structuredContent tokens"})).verdict.is_block()
    );
}

#[test]
fn raised_letters_and_small_capitals_are_letters() {
    let mut flow = flow();
    let said = "the orchard at lindenau is to be sold to the brandt family before winter";
    read(&mut flow, said, true, 1000);
    let raised = |c: char| match c {
        'a' => 'ᵃ',
        'b' => 'ᵇ',
        'd' => 'ᵈ',
        'e' => 'ᵉ',
        'h' => 'ʰ',
        'i' => 'ⁱ',
        'l' => 'ˡ',
        'n' => 'ⁿ',
        'o' => 'ᵒ',
        'r' => 'ʳ',
        's' => 'ˢ',
        't' => 'ᵗ',
        'u' => 'ᵘ',
        'w' => 'ʷ',
        'm' => 'ᵐ',
        'y' => 'ʸ',
        'c' => 'ᶜ',
        'f' => 'ᶠ',
        c => c,
    };
    let small = |c: char| match c {
        'a' => 'ᴀ',
        'b' => 'ʙ',
        'd' => 'ᴅ',
        'e' => 'ᴇ',
        'h' => 'ʜ',
        'i' => 'ɪ',
        'l' => 'ʟ',
        'n' => 'ɴ',
        'o' => 'ᴏ',
        'r' => 'ʀ',
        's' => 'ꜱ',
        't' => 'ᴛ',
        'u' => 'ᴜ',
        'w' => 'ᴡ',
        'm' => 'ᴍ',
        'y' => 'ʏ',
        'c' => 'ᴄ',
        'f' => 'ꜰ',
        c => c,
    };
    for body in [said.chars().map(raised).collect::<String>(), said.chars().map(small).collect()] {
        assert!(send(&mut flow, "mail", EXTERNAL, &json!({"body": body})).verdict.is_block(), "{body}");
    }
}
