//! Servers that prove themselves with the certificate of a private authority: the session believes them, and so do programs inside,
//! wherever the user says that he trusts it.

use std::fs;
use std::path::Path;

use crate::support::forge::authority;
use crate::support::sandbox::{Kind, Sandbox};
use crate::support::trusted::SOURCES;
use crate::support::{Mode, Outcome, Place, no, skip, yes};

#[test]
#[ignore = "takes long"]
fn authorities_of_the_user_are_trusted_by_the_session_and_inside() {
    let modes = Mode::all();
    for (number, (name, set)) in SOURCES.iter().enumerate() {
        eprintln!("{name}");
        let kind = if number % 3 == 0 { Kind::Server } else { Kind::Agent };
        let place = Place::new(modes[number % modes.len()]).online().policed_by("userns");
        let sandbox = Sandbox { place, kind };
        let place = &sandbox.place;
        let pem = authority(place);
        let inspected = "https-request allowed.test:8443 system GET /x allowed.test:8443";
        let plain = "https v6.test:8443 system v6.test";
        sandbox
            .policy("network: {allow: [{host: allowed.test, port: 8443, inspect: true}, \"v6.test:8443\"]}");
        sandbox.holds(&[no(inspected), no(plain)]);
        set(place, &pem);
        sandbox.holds(&[yes(inspected), yes(plain)]);
        // Also where nothing is inspected, and the session's own authority is not there.
        sandbox.policy("network: {allow: [\"v6.test:8443\"]}");
        sandbox.holds(&[yes(plain)]);
    }
}

/// A project is not the user: the authorities that its files name are not trusted.
#[test]
fn project_files_add_no_authorities() {
    for mode in Mode::all() {
        let sandbox = Sandbox { place: Place::new(mode).online().policed_by("userns"), kind: Kind::Agent };
        let place = &sandbox.place;
        let pem = authority(place).display().to_string();
        place.write(".npmrc", format!("cafile={pem}\n"));
        place.write("pip.conf", format!("[global]\ncert = {pem}\n"));
        place.write(".cargo/config.toml", format!("[http]\ncainfo = \"{pem}\"\n"));
        place.write(".git/config", format!("[http]\n\tsslCAInfo = {pem}\n"));
        sandbox.policy("network: {allow: [{host: allowed.test, port: 8443, inspect: true}]}");
        sandbox.holds(&[no("https-request allowed.test:8443 system GET /x allowed.test:8443")]);
        let blocked = place.events("net_connect_blocked");
        assert!(blocked.iter().any(|event| event["reason"] == "certificate-not-valid"), "{blocked:?}");
    }
}

/// Programs with their own list of authorities do not read the machine's: a file that is named for one of them is used for all.
#[test]
fn machine_authorities_reach_programs_with_their_own_list() {
    let Some(machine) = ["/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt"]
        .into_iter()
        .find(|file| Path::new(file).exists())
    else {
        return skip("this machine has no list of authorities");
    };
    let text = fs::read_to_string(machine).unwrap();
    let (first, _) = text.split_once("-----END CERTIFICATE-----").unwrap();
    let script = "echo \"$NODE_EXTRA_CA_CERTS $REQUESTS_CA_BUNDLE\"; test -z \"$PIP_CERT\" || cat \"$PIP_CERT\" | cksum";
    for mode in Mode::all() {
        let place = Place::new(mode);
        let inside = || Outcome::of(&mut place.agentsh(&["run", "--quiet", "--", "sh", "-c", script])).stdout;
        assert_eq!(inside(), " \n", "{mode:?}: nobody was named");
        let sum = Outcome::of(place.command("sh").args(["-c", &format!("cat {machine} | cksum")])).stdout;
        let company = place.home.join("company.pem");
        place.write(&company, format!("{first}-----END CERTIFICATE-----\n"));
        for named in [company.display().to_string(), machine.to_owned()] {
            place.set("NODE_EXTRA_CA_CERTS", named.clone());
            let said = inside();
            let (files, now) = said.split_once('\n').unwrap();
            let (node, python) = files.split_once(' ').unwrap();
            assert!(node == python && Path::new(node).is_absolute(), "{mode:?} {named}: {said}");
            assert_eq!(now, sum, "{mode:?} {named}");
        }
    }
}
