#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

use std::time::{Duration, Instant};

use proptest::prelude::*;

use super::*;

fn found(text: &str) -> Vec<(Kind, &str)> {
    find(text, 1000).into_iter().map(|entity| (entity.kind, &text[entity.start..entity.end])).collect()
}

fn kinds(text: &str) -> Vec<Kind> {
    found(text).into_iter().map(|(kind, _)| kind).collect()
}

#[test]
fn secrets_are_found_with_their_kind() {
    for (text, kind, value) in [
        ("key sk-4Rt9LmQ2xVb7Ny3Kp8Wd6Hs now", Kind::ApiKey, "sk-4Rt9LmQ2xVb7Ny3Kp8Wd6Hs"),
        ("id = AKIAZQ3DXMP7RT2VLB5K", Kind::ApiKey, "AKIAZQ3DXMP7RT2VLB5K"),
        ("db password: Gr4nite&7-mule-Oslo", Kind::NamedSecret, "Gr4nite&7-mule-Oslo"),
        ("{\"client_secret\": \"a8Kq-77zz-Pw\"}", Kind::NamedSecret, "a8Kq-77zz-Pw"),
        ("API_TOKEN=q7w8e9r0t1y2", Kind::NamedSecret, "q7w8e9r0t1y2"),
        ("postgres://app:pa55w0rd!@db.internal:5432/main", Kind::ConnectionString, "pa55w0rd!"),
        ("pay to DE89370400440532013000.", Kind::Iban, "DE89370400440532013000"),
        ("pay to DE89 3704 0044 0532 0130 00 today", Kind::Iban, "DE89 3704 0044 0532 0130 00"),
        ("IBAN: GB82 WEST 1234 5698 7654 32, 10 pounds", Kind::Iban, "GB82 WEST 1234 5698 7654 32"),
        ("NO93 8601 1117 947 and NO94", Kind::Iban, "NO93 8601 1117 947"),
        ("card 4111 1111 1111 1111 ok", Kind::Card, "4111 1111 1111 1111"),
        ("SSN 536-90-4399,", Kind::NationalId, "536-90-4399"),
        ("call +49 30 901820 now", Kind::Phone, "49 30 901820"),
        ("mail Ann.Lee+x@mail.example.org!", Kind::Email, "Ann.Lee+x@mail.example.org"),
        ("at 10.20.30.40 up", Kind::Ip, "10.20.30.40"),
        ("id 123e4567-e89b-12d3-a456-426614174000", Kind::Uuid, "123e4567-e89b-12d3-a456-426614174000"),
        ("see (https://docs.example.org/a/b?c=d).", Kind::Url, "https://docs.example.org/a/b?c=d"),
        (
            "commit 9fceb02d0ae598e95dc970b74767f19372d61af8",
            Kind::HexId,
            "9fceb02d0ae598e95dc970b74767f19372d61af8",
        ),
        ("open /home/ann/src/main.rs", Kind::Path, "/home/ann/src/main.rs"),
        ("Y8kQ2zP5mW1xR7vT4nB6 it is", Kind::HighEntropy, "Y8kQ2zP5mW1xR7vT4nB6"),
    ] {
        assert!(found(text).contains(&(kind, value)), "{text}: {:?}", found(text));
    }
}

#[test]
fn names_of_variables_and_resources_are_no_secrets() {
    for text in [
        "STRIPE_SECRET_KEY",
        "Where is JWT_SIGNING_SECRET used?",
        "k8s-node-pool-7f9c Ready",
        "SENTRY_ENVIRONMENT=production",
        "feature-flag-checkout-v2-rollout",
    ] {
        assert!(kinds(text).iter().all(|kind| !kind.is_secret()), "{text}: {:?}", found(text));
    }
    let line = "STRIPE_SECRET_KEY=sk_live_PTT0aZN0dnruqXa71P2tD8vk";
    assert_eq!(found(line), [(Kind::ApiKey, "PTT0aZN0dnruqXa71P2tD8vk")]);
}

#[test]
fn passwords_are_found_in_many_wordings() {
    let secret = "Walnut4!canoe-Rig";
    for text in [
        "The root password is Walnut4!canoe-Rig, keep it.",
        "the passphrase of the guest wifi is Walnut4!canoe-Rig",
        "log in with the password `Walnut4!canoe-Rig` first",
        "| name | password | since |\n|---|---|---|\n| jo | Walnut4!canoe-Rig | May |\n",
        "user,password\njo,Walnut4!canoe-Rig\n",
        "user;\"DB password\"\njo;\"Walnut4!canoe-Rig\"\n",
        "<login><password>Walnut4!canoe-Rig</password></login>",
        "Benutzer jo, Passwort: Walnut4!canoe-Rig, bis Mai",
        "das Kennwort lautet Walnut4!canoe-Rig",
        "Compte jo, mot de passe : Walnut4!canoe-Rig.",
        "la contraseña es Walnut4!canoe-Rig",
        "Пароль: Walnut4!canoe-Rig",
        "账号：jo，密码：Walnut4!canoe-Rig，五月",
        "请各位同事注意今后登录生产环境的数据库时所使用的新的统一密码为Walnut4!canoe-Rig，五月",
        "数据库密码是 Walnut4!canoe-Rig",
        "パスワードはWalnut4!canoe-Rigです",
        "09:14 login as deploy_ro / Walnut4!canoe-Rig ok",
        "DB_PASS=Walnut4!canoe-Rig",
        "{\"name\": \"SMTP_PASSWORD\", \"value\": \"Walnut4!canoe-Rig\"}",
        "- name: SMTP_PASSWORD\n  value: Walnut4!canoe-Rig",
    ] {
        assert!(found(text).contains(&(Kind::NamedSecret, secret)), "{text}: {:?}", found(text));
    }
}

#[test]
fn prose_about_passwords_is_no_secret() {
    for text in [
        "The password is hashed with Argon2id and a salt of 16 bytes.",
        "Your password is required, and the token is read from the environment.",
        "password, token, and secret are words\nthat stand, in this, sentence",
        "| field | password |\n|---|---|\n| type | string of at least twelve characters |\n",
        "<password></password><note>Release2-Notes</note>",
        "the file is src/Main2-View.rs and the answer is Html5-Canvas",
        "compass: North2East, il passe 12345678",
        "TCP / IP and UTF-8 / ISO-8859-1",
    ] {
        assert!(kinds(text).iter().all(|kind| *kind != Kind::NamedSecret), "{text}: {:?}", found(text));
    }
}

#[test]
fn tables_with_long_lines_are_read_to_their_end() {
    let wide = "é".repeat(900);
    for text in [
        format!("user,password\njo,Walnut4!canoe-Rig\n{wide},{wide}\nann,Maple7!kayak-Oar\n"),
        format!("user,password{wide}\n{wide},x\n"),
        format!("{wide},password,x\n{wide},password,y"),
        "é,password,".repeat(500),
        format!("user,password\n{}", "jo,Walnut4!canoe-Rig\n".repeat(5000)),
    ] {
        let count = find(&text, 10_000).len();
        assert!(count <= 4096, "{count}");
    }
    assert_eq!(find("user,password\njo,Walnut4!canoe-Rig", 10).len(), 1);
}

#[test]
fn private_key_finding_covers_its_body() {
    let text = "-----BEGIN EC PRIVATE KEY-----\nAbCd1234\n-----END EC PRIVATE KEY-----";
    assert!(found(text).contains(&(Kind::PrivateKey, "\nAbCd1234\n")));
    assert!(
        !kinds("-----BEGIN CERTIFICATE-----\nAbCd\n-----END CERTIFICATE-----").contains(&Kind::PrivateKey)
    );
}

#[test]
fn leaves_ordinary_text_alone() {
    for text in [
        "The starter plan costs 19.99 per month and includes 10 seats.",
        "Version 10.2.14.3.1 of 2024-11-05 listens on port 8443",
        "const token = generateSessionToken();",
        "A password must have at least twelve characters and a token expires after a day.",
        "getElementById querySelectorAll XMLHttpRequest useEffect2",
        "order 4111111111111112 of 1234567",
    ] {
        assert_eq!(found(text), [], "{text}");
    }
}

#[test]
fn hostile_runs_take_linear_time() {
    for piece in [
        "a@",
        "a",
        "f0",
        "=",
        "sk-",
        "1.",
        "1 ",
        "://",
        "a@b.",
        "-----BEGIN",
        "password=",
        "+1(",
        "password,",
        "password|\n",
        "密码A1b-",
        "Ab1-c ",
    ] {
        let text = piece.repeat(400_000 / piece.len());
        let start = Instant::now();
        let _ = find(&text, 1000);
        // A hundred times what it takes without optimisation; what grows with the square takes minutes.
        assert!(start.elapsed() < Duration::from_secs(20), "{piece}: {:?}", start.elapsed());
    }
}

proptest! {
    #[test]
    fn secret_search_never_panics_and_stays_in_bounds(text in "(\\PC|[-+=:@./ 0-9a-zA-Z\"]){0,120}") {
        for entity in find(&text, 50) {
            prop_assert!(entity.start < entity.end);
            prop_assert!(text.get(entity.start..entity.end).is_some());
        }
    }
}
