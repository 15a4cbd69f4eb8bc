//! The executable. All code is in the library.

fn main() -> std::process::ExitCode {
    agentsh::cli::main()
}
