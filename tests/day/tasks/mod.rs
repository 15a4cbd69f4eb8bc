//! Tasks of people in a project, as scripts, by subject: each with the programs that it needs and the expected
//! result.

pub mod git;
pub mod machine;
pub mod programs;
pub mod project;

/// One ordinary task. All scripts are run by `sh -ec` in a new copy of the project of `template.sh`.
pub struct Task {
    pub name: &'static str,
    /// Programs without which it is skipped.
    pub needs: &'static [&'static str],
    /// Outside, before the session.
    pub before: &'static str,
    pub inside: &'static str,
    /// Outside, after the session: it has to succeed.
    pub after: &'static str,
    /// More of the command line of `agentsh run`.
    pub flags: &'static [&'static str],
    /// Where below the project it starts.
    pub place: &'static str,
    /// The expected message if the task is refused.
    pub refused: Option<&'static str>,
}

impl Task {
    pub const fn before(mut self, script: &'static str) -> Self {
        self.before = script;
        self
    }

    pub const fn after(mut self, script: &'static str) -> Self {
        self.after = script;
        self
    }

    pub const fn with(mut self, flags: &'static [&'static str]) -> Self {
        self.flags = flags;
        self
    }

    pub const fn started_in(mut self, place: &'static str) -> Self {
        self.place = place;
        self
    }
}

/// A task that works.
pub const fn works(name: &'static str, needs: &'static [&'static str], inside: &'static str) -> Task {
    Task { name, needs, before: "", inside, after: "", flags: &[], place: "", refused: None }
}

/// A task that is refused, with this text in the message.
pub const fn refused(
    name: &'static str,
    needs: &'static [&'static str],
    inside: &'static str,
    says: &'static str,
) -> Task {
    Task { refused: Some(says), ..works(name, needs, inside) }
}
