//! The binary: everything stands in the library.

fn main() -> std::process::ExitCode {
    agentsh::cli::main()
}
