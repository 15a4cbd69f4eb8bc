//! `agentsh man`: a manual page for each verb, generated from `--help`.

use std::io::Write;
use std::path::{Path, PathBuf};

use clap::{Args, Command};
use clap_mangen::Man;

use super::examples::Examples;
use agentsh_terminal::output::{Failure, OK, finish};

#[derive(Debug, Args)]
pub struct ManArgs {
    /// Write a page for each command into this directory, instead of printing the main page
    #[arg(long, value_name = "DIR")]
    directory: Option<PathBuf>,
}

pub fn run(args: &ManArgs, command: Command, out: &mut dyn Write, err: &mut dyn Write) -> u8 {
    let mut command = command.disable_help_subcommand(true);
    command.build();
    finish(make(args, &command, out), err)
}

fn make(args: &ManArgs, command: &Command, out: &mut dyn Write) -> Result<u8, Failure> {
    let examples = Examples::of_all(command);
    match &args.directory {
        None => out.write_all(&page(command, "", &examples)?)?,
        Some(directory) => {
            let failed = |error: std::io::Error| {
                Failure::Failed(format!("cannot write {}: {error}", directory.display()))
            };
            std::fs::create_dir_all(directory).map_err(failed)?;
            let written = write_pages(command, "", directory, &examples).map_err(failed)?;
            writeln!(out, "{written} pages in {}", directory.display())?;
        }
    }
    Ok(OK)
}

/// The page of a verb and those below it. Gives their number.
fn write_pages(
    command: &Command,
    words: &str,
    directory: &Path,
    examples: &Examples,
) -> std::io::Result<usize> {
    let name = format!("agentsh {words}").trim().replace(' ', "-");
    std::fs::write(directory.join(format!("{name}.1")), page(command, words, examples)?)?;
    let mut written = 1;
    for inner in command.get_subcommands().filter(|inner| !inner.is_hide_set()) {
        written += write_pages(inner, format!("{words} {}", inner.get_name()).trim(), directory, examples)?;
    }
    Ok(written)
}

fn page(command: &Command, words: &str, examples: &Examples) -> std::io::Result<Vec<u8>> {
    let man =
        Man::new(command.clone()).manual("agentsh").source(format!("agentsh {}", env!("CARGO_PKG_VERSION")));
    let mut page = Vec::new();
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    man.render_synopsis_section(&mut page)?;
    man.render_description_section(&mut page)?;
    if command.get_arguments().any(|argument| !argument.is_hide_set()) {
        man.render_options_section(&mut page)?;
    }
    if command.get_subcommands().any(|inner| !inner.is_hide_set()) {
        man.render_subcommands_section(&mut page)?;
    }
    writeln!(page, ".SH EXAMPLES\n.nf")?;
    for line in examples.of(words) {
        writeln!(page, "{}", verbatim(line))?;
    }
    writeln!(page, ".fi")?;
    Ok(page)
}

/// A literal line: nothing in it is a request of roff.
fn verbatim(line: &str) -> String {
    let line = line.replace('\\', "\\e").replace('-', "\\-").replace('\'', "\\(aq").replace('`', "\\(ga");
    if line.starts_with('.') { format!("\\&{line}") } else { line }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

    use clap::CommandFactory;

    use super::*;

    #[test]
    fn every_verb_has_a_page_and_hidden_ones_have_none() {
        let place = tempfile::tempdir().unwrap();
        let args = ManArgs { directory: Some(place.path().join("man1")) };
        let mut said = Vec::new();
        let code = run(&args, super::super::Arguments::command(), &mut said, &mut Vec::new());
        assert_eq!(code, OK, "{}", String::from_utf8_lossy(&said));
        let page = |name: &str| std::fs::read_to_string(place.path().join("man1").join(name));
        let run = page("agentsh-run.1").unwrap();
        assert!(run.contains(".SH OPTIONS") && run.contains("agentsh run claude"), "{run}");
        assert!(run.contains("agentsh run \\-\\- claude \\-p \\(aqfix the tests\\(aq"), "{run}");
        assert!(page("agentsh.1").unwrap().contains("agentsh\\-mcp(1)"), "pages below are named");
        assert!(page("agentsh-mcp-pins-trust.1").is_ok());
        assert!(page("agentsh-bridge.1").is_err() && page("agentsh-shim.1").is_err());
    }
}
