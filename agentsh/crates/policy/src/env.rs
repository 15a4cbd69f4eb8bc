//! Which environment variables a process gets. The sandbox and `policy explain` use the same function.

use super::glob;
use super::model::{EnvPolicy, Ruled};
use crate::texts::texts;
use crate::types::RuleRef;

/// Always passed, in every mode.
pub const STANDARD: &[&str] = &["PATH", "HOME", "USER", "SHELL", "TERM", "LANG", "TMPDIR", "XDG_RUNTIME_DIR"];

/// A name with one of these endings passes a glob of `env_allow` only when it is listed by its full name.
const SENSITIVE_SUFFIXES: &[&str] = texts! {
    "_TOKEN" "_TOKENS" "_KEY" "_KEYS" "_APIKEY" "_API_KEY" "_SECRET" "_SECRETS" "_PASSWORD" "_PASSWD"
    "_PASSPHRASE" "_PASS" "_PAT" "_CREDENTIALS" "_CREDENTIAL" "_CREDS" "_AUTH" "_COOKIE" "_DATABASE_URL"
    "_CONNECTION_STRING" "_DSN" "_PEM"
};

/// Variables that make a program load or run code that another one chose (globs). They pass only when listed by
/// their full name.
const LOADER: &[&str] = texts! {
    "LD_*" "DYLD_*" "GCONV_PATH" "GLIBC_TUNABLES" "LOCPATH" "BASH_ENV" "BASH_FUNC_*" "ENV" "SHELLOPTS"
    "BASHOPTS" "PS4" "PROMPT_COMMAND" "ZDOTDIR" "NODE_OPTIONS" "NODE_PATH" "NODE_REPL_EXTERNAL_MODULE"
    "BUN_OPTIONS" "NPM_CONFIG_*" "npm_config_*" "PYTHONSTARTUP" "PYTHONPATH" "PYTHONHOME" "PYTHONUSERBASE"
    "PYTHONINSPECT" "PYTHONBREAKPOINT" "PERL5LIB" "PERL5OPT" "PERL5DB" "PERLLIB" "RUBYOPT" "RUBYLIB"
    "GEM_HOME" "GEM_PATH" "JAVA_TOOL_OPTIONS" "JDK_JAVA_OPTIONS" "_JAVA_OPTIONS" "CLASSPATH" "PHPRC"
    "PHP_INI_SCAN_DIR" "LUA_INIT*" "LUA_PATH*" "LUA_CPATH*" "GIT_SSH*" "GIT_EXEC_PATH" "GIT_CONFIG*"
    "GIT_EXTERNAL_DIFF" "GIT_PAGER" "GIT_EDITOR" "GIT_ASKPASS" "GIT_PROXY_COMMAND" "GIT_TEMPLATE_DIR"
    "GCC_EXEC_PREFIX" "RUSTC_WRAPPER" "RUSTC_WORKSPACE_WRAPPER" "CARGO_BUILD_RUSTC*" "OPENSSL_CONF"
    "OPENSSL_ENGINES" "OPENSSL_MODULES" "VIMINIT" "EXINIT" "LESSOPEN" "LESSCLOSE"
};

/// Whether a variable passes, why, and by which rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EnvDecision {
    pub pass: bool,
    pub why: &'static str,
    pub rule: RuleRef,
}

impl EnvPolicy {
    /// Whether `env_deny` names a variable, which no feature sets then by default.
    #[must_use]
    pub fn denies(&self, name: &str) -> bool {
        first_match(&self.never, name).is_some()
    }

    /// Decides about one variable of agentsh's environment. `section` is the place of a rule that would change the answer,
    /// such as `agent`.
    ///
    /// What `never` names is stripped in every case; otherwise a name in the allow list passes. What no list names
    /// passes only where the policy says so (`others`).
    #[must_use]
    pub fn decide(&self, name: &str, section: &str) -> EnvDecision {
        let default = |key: &str| RuleRef::default_rule(&format!("{section}.{key}"));
        let answer = |pass, why, rule| EnvDecision { pass, why, rule };
        if let Some(never) = first_match(&self.never, name) {
            return answer(false, "env_deny lists it", never.rule.clone());
        }
        if STANDARD.contains(&name) {
            return answer(true, "it is a standard variable", default("env_standard"));
        }
        let listed = self.allow.iter().find(|entry| entry.value == name);
        if let Some(listed) = listed {
            return answer(true, "it is listed by its name", listed.rule.clone());
        }
        if is_loader(name) {
            let why = "it decides what programs load; only its full name in env_allow lets it pass";
            return answer(false, why, default("env_loader"));
        }
        let by_pattern = first_match(&self.allow, name);
        let is_secret = is_sensitive(name);
        if let Some(entry) = by_pattern.filter(|_| !is_secret) {
            return answer(true, "a pattern lists it", entry.rule.clone());
        }
        if self.others {
            return match (first_match(&self.deny, name), &self.inherit_rule) {
                (Some(entry), _) => answer(false, "it is listed", entry.rule.clone()),
                (None, Some(rule)) => answer(true, "everything is passed on", rule.clone()),
                (None, None) => answer(true, "env_deny does not list it", default("env_deny")),
            };
        }
        if by_pattern.is_some() {
            let why = "its name ends like a secret's; only its full name in env_allow lets it pass";
            return answer(false, why, default("env_sensitive"));
        }
        let why = if self.allow.is_empty() {
            "only standard variables are passed on"
        } else {
            "env_allow does not list it"
        };
        answer(false, why, default("env_allow"))
    }
}

/// Whether the variable decides what a program loads or runs.
#[must_use]
pub fn is_loader(name: &str) -> bool {
    LOADER.iter().any(|pattern| glob::matches(pattern, name))
}

/// Whether the name ends like that of a secret, in any case of letters.
#[must_use]
pub fn is_sensitive(name: &str) -> bool {
    let upper = name.to_ascii_uppercase();
    SENSITIVE_SUFFIXES.iter().any(|suffix| upper.ends_with(suffix))
}

fn first_match<'l>(list: &'l [Ruled<String>], name: &str) -> Option<&'l Ruled<String>> {
    list.iter().find(|entry| glob::matches(&entry.value, name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(patterns: &[&str]) -> Vec<Ruled<String>> {
        let ruled = |p: &&str| Ruled { value: (*p).to_owned(), rule: RuleRef::default_rule(p) };
        patterns.iter().map(ruled).collect()
    }

    fn passes(env: &EnvPolicy, names: &[&str]) -> Vec<bool> {
        names.iter().map(|name| env.decide(name, "agent").pass).collect()
    }

    #[test]
    fn without_lists_only_standard_variables_pass() {
        let env = EnvPolicy::default();
        assert_eq!(passes(&env, &["PATH", "HOME", "AWS_REGION", "LD_PRELOAD"]), [true, true, false, false]);
        let all = EnvPolicy { others: true, ..EnvPolicy::default() };
        assert_eq!(passes(&all, &["AWS_REGION", "LD_PRELOAD", "GITHUB_TOKEN"]), [true, false, true]);
    }

    #[test]
    fn a_glob_does_not_let_a_secret_or_a_loader_variable_pass() {
        let env = EnvPolicy { allow: list(&["CI_*", "LD_*", "GITHUB_TOKEN"]), ..EnvPolicy::default() };
        let names = ["CI_JOB", "CI_JOB_TOKEN", "ci_job", "LD_PRELOAD", "GITHUB_TOKEN", "OTHER", "PATH"];
        assert_eq!(passes(&env, &names), [true, false, false, false, true, false, true]);
    }

    #[test]
    fn env_allow_wins_over_deny_and_env_never_wins_over_allow() {
        let mut env = EnvPolicy { allow: list(&["A"]), deny: list(&["A"]), ..EnvPolicy::default() };
        assert_eq!(passes(&env, &["A", "B"]), [true, false]);
        env.never = list(&["A"]);
        assert_eq!(passes(&env, &["A"]), [false]);
    }

    #[test]
    fn env_deny_removes_by_glob_and_passes_the_rest() {
        let env = EnvPolicy { deny: list(&["AWS_*"]), others: true, ..EnvPolicy::default() };
        assert_eq!(passes(&env, &["AWS_SECRET", "OTHER_TOKEN", "BASH_ENV"]), [false, true, false]);
    }
}
