//! Package registries of the project's ecosystems: only reading is allowed, and only the user's configuration names
//! them.

use crate::support::forge::{authority, forge};
use crate::support::sandbox::{Kind, Sandbox};
use crate::support::{Mode, Outcome, Place, no, yes};

fn sandbox(mode: Mode, backend: &'static str) -> Sandbox {
    let sandbox = Sandbox { place: Place::new(mode).online().policed_by(backend), kind: Kind::Agent };
    let place = &sandbox.place;
    place.set("SSL_CERT_FILE", authority(place).display().to_string());
    place.write(
        place.home.join(".npmrc"),
        "registry = https://allowed.test:8443/npm/\n//allowed.test/:_authToken=secret\n",
    );
    sandbox
}

fn request(rest: &str) -> String {
    format!("https-request allowed.test:8443 system {rest} allowed.test:8443")
}

#[test]
#[ignore = "takes long"]
fn project_registry_is_allowed_for_reading() {
    for mode in Mode::all() {
        for backend in ["auto", "userns"] {
            let sandbox = sandbox(mode, backend);
            let place = &sandbox.place;
            // Without a file of the ecosystem there is nothing to fetch.
            sandbox.holds(&[no(request("GET /npm/left-pad"))]);
            place.write("package.json", "{}");
            // A registry that only the project names does not count.
            place.write(".npmrc", "registry = https://v4.test:8443/\n");
            place.write(
                "package-lock.json",
                "{\"packages\": {\"\": {\"resolved\": \"https://v4.test:8443/x.tgz\"}}}",
            );
            sandbox.holds(&[
                yes(request("GET /npm/left-pad")),
                // A package with a scope, as npm writes it.
                yes(request("GET /npm/@own%2fleft-pad")),
                no(request("GET /npm/..%252f..")),
                no(request("PUT /npm/left-pad")),
                // `npm audit` asks; nothing else is posted.
                yes(request("POST /npm/-/npm/v1/security/advisories/bulk")),
                no(request("POST /npm/-/npm/v1/security")),
                no(request("POST /npm/-/v1/login")),
                no("https-request v4.test:8443 system GET /x.tgz v4.test:8443"),
            ]);
            let blocked = place.events("net_connect_blocked");
            let first = blocked.iter().find(|event| event["reason"] == "request-not-allowed").unwrap();
            assert!(first["rule"]["file"].as_str().unwrap().ends_with(".npmrc"), "{first}");
        }
    }
}

/// A package of the user's own registry must not come from another one.
#[test]
fn package_managers_use_the_users_registries() {
    for mode in Mode::all() {
        let place = Place::new(mode);
        place.write(
            place.home.join(".npmrc"),
            "@own-keys:registry=https://npm.example/own/\nsave-exact=true\n//npm.example/own/:_authToken=npm_secret\n\
             @other:registry=https://user:word@npm.example/\nhttps-proxy=user:word@proxy.example:3128\n",
        );
        place.write(
            place.home.join(".config/pip/pip.conf"),
            "[global]\nindex-url = https://pip.example/simple\nextra-index-url = https://user:word@pip.example/\n\
             \x20   https://more.example/\n",
        );
        place.set("UV_INDEX_URL", "https://uv.keystone.example/simple");
        place.set("PIP_EXTRA_INDEX_URL", "https://user:word@pip.example/simple\nhttps://pip.example/more");
        let script = "cat ~/.npmrc ~/.config/pip/pip.conf; echo $UV_INDEX_URL $PIP_EXTRA_INDEX_URL";
        let words = ["run", "--quiet", "--", "sh", "-c", script];
        let outcome = Outcome::of(&mut place.agentsh(&words)).expect_code(0);
        let expected = "@own-keys:registry=https://npm.example/own/\nsave-exact=true\n[global]\n\
                        index-url = https://pip.example/simple\nextra-index-url =\n    https://more.example/\n\
                        https://uv.keystone.example/simple https://pip.example/more\n";
        assert_eq!(outcome.stdout, expected, "{outcome}");
        // What the user denies is not shown in part either.
        place.user_policy("version: 1\nagent: {env_deny: [\"UV_*\"], filesystem: {deny: [\"~/.npmrc\"]}}\n");
        let words = ["run", "--quiet", "--", "sh", "-c", "cat ~/.npmrc; echo $UV_INDEX_URL"];
        let outcome = Outcome::of(&mut place.agentsh(&words));
        assert!(!outcome.stdout.contains(".example"), "{outcome}");
    }
}

/// Maven's mirror is the user's word, and apt's archives are the machine's.
#[test]
fn maven_uses_the_users_mirror() {
    for mode in Mode::all() {
        let sandbox = sandbox(mode, "userns");
        let place = &sandbox.place;
        place.write(
            place.home.join(".m2/settings.xml"),
            "<settings><!-- <url>https://v4.test:8443/</url> --><mirrors><mirror><mirrorOf>*</mirrorOf>\
             <url>https://allowed.test:8443/maven</url></mirror></mirrors></settings>",
        );
        sandbox.holds(&[no(request("GET /maven/a.jar"))]);
        place.write("pom.xml", "<project/>");
        sandbox.holds(&[
            yes(request("GET /maven/a.jar")),
            no(request("PUT /maven/a.jar")),
            no(request("POST /maven/-/npm/v1/security/advisories/bulk")),
            no("https-request v4.test:8443 system GET /a.jar v4.test:8443"),
        ]);
    }
}

/// A cargo that was never used has no index on the disk, only the address of one in itself.
#[test]
fn cargo_without_an_index_reaches_its_registry() {
    for mode in Mode::all() {
        let place = forge(mode, "userns");
        place.script(
            place.home.join("bin/cargo"),
            "#!/bin/sh\n# sparse+https://allowed.test:8443/ sparse+https://next\n",
        );
        place.set("PATH", format!("{}:/usr/local/bin:/usr/bin:/bin", place.home.join("bin").display()));
        let sandbox = Sandbox { place, kind: Kind::Agent };
        let packages = "https-request v4.test:8443 system GET /crates/a v4.test:8443";
        // No host is opened where there is nothing to build.
        sandbox.holds(&[no(packages), no(request("GET /in/de/index"))]);
        sandbox.place.write("Cargo.lock", "version = 4\n");
        sandbox.holds(&[
            yes(packages),
            yes(request("GET /in/de/index")),
            no(request("PUT /api/v1/crates/new")),
            no("https-request other.test:8443 system GET /x other.test:8443"),
        ]);
    }
}
