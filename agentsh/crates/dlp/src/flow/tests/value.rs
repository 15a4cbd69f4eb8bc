//! Values of results in other clothes, and in the addresses that may be followed.

use serde_json::json;

use super::*;

/// A part of a complete address that looks like a secret counts as part of the address.
#[test]
fn link_from_a_result_may_be_followed_but_its_parts_may_not_leave() {
    let mut flow = flow();
    let link = "https://gist.example.com/a/Zk3vQ9xT2mB7nR4wL8pD1sF6/raw/x.txt";
    read(&mut flow, &format!("raw_url {link} size 12"), true, 1000);
    let judged = send(&mut flow, "fetch", EXTERNAL, &json!({"url": link}));
    assert!(!judged.is_refused(), "{:?}", judged.findings);
    for other in [
        "Zk3vQ9xT2mB7nR4wL8pD1sF6".to_owned(),
        format!("https://other.example/?x={}", "Zk3vQ9xT2mB7nR4wL8pD1sF6"),
    ] {
        assert!(send(&mut flow, "fetch", EXTERNAL, &json!({"url": other})).is_refused(), "{other}");
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
        assert!(judged.is_refused(), "{reversed}");
        for by in [1, 13, 25] {
            let body = turned(value, by);
            let has_letters = body != value;
            let judged = send(&mut flow, "mail", EXTERNAL, &json!({"body": body}));
            assert!(judged.is_refused() || !has_letters, "{body}");
        }
    }
}

#[test]
fn secret_as_a_member_name_is_found() {
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
    flow.remember(origin, &Leaves::of(&tree), &Views::NONE);
    let body = json!({"body": "use ghp_9QzXtw3Lm4Vb7Ny3Kp8Wd6HsZc1Jf5Rr2T for it"});
    assert!(send(&mut flow, "mail", EXTERNAL, &body).is_refused());
    assert!(!send(&mut flow, "mail", EXTERNAL, &json!({"body": "structuredContent tokens"})).is_refused());
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
        assert!(send(&mut flow, "mail", EXTERNAL, &json!({"body": body})).is_refused(), "{body}");
    }
}

/// Whether arguments are refused when everything that decodes from them is looked at.
fn blocks_decoded(flow: &mut Flow, arguments: &Value) -> bool {
    let text = arguments.to_string();
    let tree = json::read(text.as_bytes()).unwrap();
    let call = Leaves::of_call("send", &tree);
    let views = crate::Views::default();
    let is_block = flow.judge(&server("mail"), EXTERNAL, &call, seconds(1001), &views).is_refused();
    if is_block {
        flow.not_sent();
    }
    is_block
}

#[test]
fn link_with_an_identifier_counts_as_a_link() {
    let mut flow = flow();
    let link = "https://packages.example.com/jobs/3b9e51c7-04fd-4a86-b21d-6f7c80a9d2e5?after=Wk3vQ9xT2mB7nR4wL8pD1sF6aB";
    read(&mut flow, &format!("see {link} of today"), true, 1000);
    assert!(!send(&mut flow, "fetch", EXTERNAL, &json!({"url": link})).is_refused());
    let other = "https://other.example/?x=Wk3vQ9xT2mB7nR4wL8pD1sF6aB";
    assert!(send(&mut flow, "fetch", EXTERNAL, &json!({"url": other})).is_refused());
}

#[test]
fn id_is_found_in_any_spelling() {
    let mut flow = flow();
    read(&mut flow, "client Femke, BSN 246813507, and Carmen with DNI 50231674L", true, 1000);
    for body in ["246813507", "it is 246 813 507.", "2468.13.507", "50231674l"] {
        assert!(send(&mut flow, "mail", EXTERNAL, &json!({"body": body})).is_refused(), "{body}");
    }
    assert!(!send(&mut flow, "mail", EXTERNAL, &json!({"body": "246 813 508"})).is_refused());
}

#[test]
fn refused_call_does_not_count_towards_the_next_one() {
    let mut flow = flow();
    read(&mut flow, "the key is ghp_9QzXtw3Lm4Vb7Ny3Kp8Wd6HsZc1Jf5Rr2T", true, 1000);
    let mut blocks = |path: &str| blocks_decoded(&mut flow, &json!({"path": path}));
    let encoded = "Z2hwXzlRelh0dzNMbTRWYjdOeTNLcDhXZDZIc1pjMUpmNVJyMlQ=";
    assert!(!blocks("start.md"));
    assert!(blocks(encoded));
    for harmless in ["notes.md", "YW4gb3JkaW5hcnkgbm90ZSBhYm91dCBmZXJyaWVz", "main.py"] {
        assert!(!blocks(harmless), "{harmless}");
    }
}

/// Three or six bytes to an item, as colours and addresses of machines, and items that are no encoding.
#[test]
fn encoding_that_is_cut_into_a_list_is_found() {
    let mut flow = flow();
    read(&mut flow, KEY, true, 1000);
    let hex: String = "sk-4Rt9LmQ2xVb7Ny3Kp8Wd6HsZc1Jf5".bytes().map(|byte| format!("{byte:02x}")).collect();
    let items = |length: usize, before: &str| -> Vec<String> {
        hex.as_bytes()
            .chunks(length)
            .map(|item| format!("{before}{}", String::from_utf8_lossy(item)))
            .collect()
    };
    for list in [
        json!(items(6, "#")),
        json!(items(8, "")),
        json!(items(6, "#").into_iter().map(|item| json!({"to": item})).collect::<Vec<_>>()),
    ] {
        assert!(send(&mut flow, "mail", EXTERNAL, &json!({"palette": list})).is_refused(), "{list}");
    }
    let honest = json!({"palette": ["#102030", "#a0b0c0"], "commits": ["4b7f2c9", "90aa01f"], "files": ["src/a.rs", "src/b.rs"]});
    assert!(!send(&mut flow, "mail", EXTERNAL, &honest).is_refused());
}

/// A phrase in a script of syllables or ideographs is short, however many letters its syllables are written with.
#[test]
fn common_phrases_in_korean_japanese_or_chinese_are_no_copy() {
    for (said, sent) in [
        (
            "지난 회의에서 정한 대로 다음 주 월요일까지 보고서 초안을 제출해 주세요. 부산 창고의 재고는 삼백 상자이고 \
             대금은 아직 받지 못했으며 담당자는 이번 달 말에 회사를 떠납니다.",
            "안녕하세요. 다음 주 월요일까지 보고서 초안을 검토해 주시면 감사하겠습니다.",
        ),
        (
            "先週の会議で決めたとおり、来週の月曜日までに報告書を提出してください。大阪の倉庫の在庫は三百箱で、代金はまだ届いておらず、担当者は今月末に退職します。",
            "お世話になっております。来週の月曜日までに報告書をご確認いただけますでしょうか。",
        ),
        (
            "按照上次会议的决定，请在下周一之前提交报告初稿。上海仓库的库存还有三百箱，货款至今没有收到，负责人将在本月底离开公司，消息暂时不要对外公布。",
            "您好，麻烦在下周一之前提交您的意见，谢谢。",
        ),
    ] {
        let mut flow = flow();
        read(&mut flow, said, true, 1000);
        let judged = send(&mut flow, "mail", EXTERNAL, &json!({"body": sent}));
        assert!(!judged.is_refused(), "{sent}: {:?}", judged.findings);
        let judged = send(&mut flow, "mail", EXTERNAL, &json!({"body": format!("{sent} {said}")}));
        assert!(judged.is_refused(), "{said}");
    }
}

/// Pieces before a restart and after it, to two servers.
#[test]
fn delivered_pieces_count_after_a_restart() {
    const TABLE: &str = r#"[{"name":"Ilse Marquardt","city":"Wolgast","amount":48211.5},
        {"name":"Jonas Pfeil","city":"Anklam","amount":90377.25},{"name":"Rieke Thoms","city":"Demmin","amount":13902.75}]"#;
    let key = "Qz7Lm2Wx9Rt4Vb6Nc8Kd3Hs5Jf1Gp0Ya";
    let text = format!("secret_key={key} stays here");
    for (said, first, second) in [
        (text.as_str(), vec![&key[..6]], &key[12..18]),
        (
            TABLE,
            vec!["Ilse Marquardt, Wolgast, 48211.5", "Jonas Pfeil, Anklam, 90377.25"],
            "Rieke Thoms, Demmin",
        ),
    ] {
        let taint = taint::Config { record: true, ..taint::Config::default() };
        let mut before = Flow::new(Config { taint: taint.clone() }, &[9; 32]);
        let mut records = vec![read(&mut before, said, true, 1000).record.unwrap()];
        for piece in first {
            let judged = send(&mut before, "mail", EXTERNAL, &json!({"body": piece}));
            assert!(!judged.is_refused(), "{piece}: {:?}", judged.findings);
            records.extend(before.sent(seconds(1001)));
        }
        assert!(records.len() > 1, "{said}");
        let after = |records: &[Vec<u8>]| {
            let mut after = Flow::new(Config { taint: taint.clone() }, &[9; 32]);
            records.iter().for_each(|record| assert!(after.import(record, seconds(1002)).is_ok()));
            send(&mut after, "web", EXTERNAL, &json!({"note": second})).is_refused()
        };
        assert!(after(&records), "{said}");
        assert!(!after(&records[..1]), "{said}");
        let mut damaged = records.pop().unwrap();
        damaged[20] ^= 1;
        assert!(before.import(&damaged, seconds(1002)).is_err());
    }
}
