//! `cargo xtask picture`: what the README shows, drawn from what `agentsh demo` prints.

use std::fmt::Write as _;
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use crate::run;

const FILE: &str = "docs/demo.svg";
/// Even if root starts it: the picture shows an ordinary user.
const USER: u32 = 1000;
/// In characters.
const WIDTHS: [usize; 4] = [13, 50, 9, 46];
const CHARACTER: f32 = 7.23;
const LINE: usize = 17;
const LAST: &str = "attacks refused";

/// Builds agentsh, runs the demo, and writes the picture.
pub fn main() -> Result<bool> {
    run::succeed(&mut run::cargo(["build", "-p", "agentsh", "--bin", "agentsh"]))?;
    let picture = draw(&demo()?)?;
    std::fs::write(run::repository().join(FILE), picture).context("cannot write the picture")?;
    run::print_text(&format!("{FILE} is written\n"));
    Ok(true)
}

fn demo() -> Result<String> {
    let home = tempfile::tempdir().context("cannot make a home")?;
    let program = home.path().join("agentsh");
    std::fs::copy(run::target().join("debug/agentsh"), &program).context("agentsh is not built")?;
    let mut command = Command::new(&program);
    command.arg("demo").current_dir(home.path()).env_clear();
    command.env("HOME", home.path()).env("PATH", "/usr/bin:/bin").stdin(Stdio::null());
    if run::is_root() {
        chown(home.path(), Some(USER), Some(USER)).context("cannot give the home away")?;
        command.uid(USER).gid(USER);
    }
    run::succeed(&mut command)
}

/// The rows of the demo, each kind of attack once, and how many there were.
fn draw(text: &str) -> Result<String> {
    let mut rows: Vec<[String; 4]> = Vec::new();
    for line in text.lines().skip(1) {
        let Ok([who, attempted, happened, by]) = <[&str; 4]>::try_from(line.split('\t').collect::<Vec<_>>())
        else {
            continue;
        };
        let happened = happened.split(':').next().unwrap_or(happened);
        if rows.iter().all(|row| row[1] != attempted) {
            // Places in a deleted policy mean nothing here.
            let by = by.split(": policy.yaml").next().unwrap_or(by).trim_end_matches(", recorded");
            rows.push([who, attempted, happened, by].map(str::to_owned));
        }
    }
    let last = text.lines().find(|line| line.ends_with(LAST)).context("the demo counts nothing")?;
    ensure!(rows.len() > 15, "the demo tried {} things", rows.len());
    let width = (WIDTHS.iter().sum::<usize>() as f32).mul_add(CHARACTER, 24.0).ceil();
    let height = (rows.len() + 4) * LINE + 14;
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} {height}\" \
         role=\"img\" aria-label=\"agentsh demo: {last}\">\n<style>text{{font:12px ui-monospace,Menlo,Consolas,monospace;\
         fill:#d0d7de;white-space:pre}}.b{{font-weight:bold}}.r{{fill:#ff7b72;font-weight:bold}}\
         .g{{fill:#7ee787;font-weight:bold}}.d{{fill:#8b949e}}</style>\n\
         <rect width=\"100%\" height=\"100%\" rx=\"8\" fill=\"#0d1117\"/>\n"
    );
    let mut at = 24;
    let mut line = |words: &[(&str, &str)], widths: &[usize]| {
        let mut column = 12.0;
        let mut text = String::new();
        for ((class, word), width) in words.iter().zip(widths) {
            let _ = write!(
                text,
                "<tspan x=\"{column:.1}\" class=\"{class}\">{}</tspan>",
                escape_xml(&truncate(word, *width))
            );
            column = (*width as f32).mul_add(CHARACTER, column);
        }
        let _ = writeln!(out, "<text y=\"{at}\">{text}</text>");
        at += LINE;
    };
    line(&[("d", "$ "), ("b", "agentsh demo")], &[3, 60]);
    let head = ["who", "attempted", "", "which layer or rule"];
    line(&head.map(|word| ("d", word)), &WIDTHS);
    for [who, attempted, happened, by] in &rows {
        let class = if happened == "works" { "g" } else { "r" };
        line(&[("d", who), ("", attempted), (class, happened), ("d", by)], &WIDTHS);
    }
    line(&[("b", last)], &[80]);
    out += "</svg>\n";
    Ok(out)
}

fn truncate(word: &str, width: usize) -> String {
    if word.chars().count() < width {
        return word.to_owned();
    }
    word.chars().take(width.saturating_sub(2)).chain(['…']).collect()
}

fn escape_xml(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
