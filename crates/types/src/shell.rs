//! Interpretation of command texts without a shell: plain words, quoting, and the invocation script.

use std::fmt::Write as _;

/// Returns the words of a command that every shell splits alike: letters, digits, `_ - . / : , + @ % =`, and
/// anything but line breaks and quotes inside single quotes. `None` for every other command, including an empty
/// one.
pub fn split_plain_words(command: &str) -> Option<Vec<String>> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut letters = command.trim_end_matches(['\n', ' ', '\t']).chars();
    while let Some(letter) = letters.next() {
        match letter {
            ' ' | '\t' => words.extend(word.take()),
            '\'' => {
                let word = word.get_or_insert_default();
                loop {
                    match letters.next()? {
                        '\'' => break,
                        '\n' | '\r' | '\0' => return None,
                        inside => word.push(inside),
                    }
                }
            }
            plain if plain.is_ascii_alphanumeric() || "_-./:,+@%=".contains(plain) => {
                word.get_or_insert_default().push(plain);
            }
            _ => return None,
        }
    }
    words.extend(word);
    // `NAME=VALUE` is an assignment, and `%1` a job of the shell.
    words.first().filter(|first| !first.contains(['=', '%']))?;
    Some(words)
}

/// Whether the word is a keyword or builtin of bash instead of a program.
pub fn is_builtin(word: &str) -> bool {
    BUILTINS_WITH_PROGRAM.contains(&word) || BUILTINS.contains(&word)
}

const BUILTINS_WITH_PROGRAM: [&str; 10] =
    ["[", "echo", "false", "kill", "printf", "pwd", "test", "time", "true", ":"];

const BUILTINS: [&str; 71] = [
    ".",
    "alias",
    "bg",
    "bind",
    "break",
    "builtin",
    "caller",
    "case",
    "cd",
    "command",
    "compgen",
    "complete",
    "compopt",
    "continue",
    "coproc",
    "declare",
    "dirs",
    "disown",
    "do",
    "done",
    "elif",
    "else",
    "enable",
    "esac",
    "eval",
    "exec",
    "exit",
    "export",
    "fc",
    "fg",
    "fi",
    "for",
    "function",
    "getopts",
    "hash",
    "help",
    "history",
    "if",
    "in",
    "jobs",
    "let",
    "local",
    "logout",
    "mapfile",
    "popd",
    "pushd",
    "read",
    "readarray",
    "readonly",
    "return",
    "select",
    "set",
    "shift",
    "shopt",
    "source",
    "suspend",
    "then",
    "times",
    "trap",
    "type",
    "typeset",
    "ulimit",
    "umask",
    "unalias",
    "unset",
    "until",
    "wait",
    "while",
    "{",
    "}",
    "!",
];

/// Quotes `text` as one word of a shell.
pub fn quote_word(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// Returns the command of a job with its invocation script. A script of several lines is put before the
/// command. A script of one line is a program that gets the command: plain words as its arguments, any other
/// command as `bash -c COMMAND`, so that the script applies to all of it. A script that ends with an operator,
/// such as `. setup.sh &&`, is followed by a group.
pub fn wrap_with_invocation_script(script: Option<&str>, command: &str) -> String {
    let Some(script) = script.map(str::trim_end).filter(|script| !script.is_empty()) else {
        return command.to_owned();
    };
    let mut text = script.to_owned();
    let written = if script.contains('\n') {
        write!(text, "\n{command}")
    } else if script.ends_with([';', '&', '|']) {
        write!(text, " {{\n{command}\n}}")
    } else if split_plain_words(command).is_some_and(|words| !BUILTINS.contains(&words[0].as_str())) {
        write!(text, " {command}")
    } else {
        // `$BASH` is the shell that runs this; it is unset if there is no bash.
        write!(text, " \"${{BASH:-/bin/sh}}\" -c {}", quote_word(command))
    };
    debug_assert!(written.is_ok(), "writing to a string cannot fail");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_shell_independent_commands_are_split() {
        let words = |command: &str| split_plain_words(command).map(|words| words.join("|"));
        for (command, expected) in [
            ("solve --n=4  a/b.txt\n", Some("solve|--n=4|a/b.txt")),
            ("sh -c 'set -C; : > \"$F\"'", Some("sh|-c|set -C; : > \"$F\"")),
            ("a ''b'' ''", Some("a|b|")),
            ("awk '{print $1}' x", Some("awk|{print $1}|x")),
            ("", None),
            ("  \n", None),
            ("A=1 env", None),
            ("env A=1", Some("env|A=1")),
            ("echo $HOME", None),
            ("echo \"a\"", None),
            ("a; b", None),
            ("a &", None),
            ("ls *.txt", None),
            ("echo {1,2}", None),
            ("cat ~/x", None),
            ("a # b", None),
            ("! a", None),
            ("a\nb", None),
            ("echo 'two\nlines'", None),
            ("echo 'open", None),
            ("echo a\\ b", None),
            ("echo é", None),
        ] {
            assert_eq!(words(command).as_deref(), expected, "{command:?}");
        }
    }

    #[test]
    fn an_invocation_script_applies_to_the_whole_command() {
        for (script, command, expected) in [
            (None, "solve 1", "solve 1"),
            (Some(" \n"), "solve 1", "solve 1"),
            (Some("bash setup.sh"), "solve 1", "bash setup.sh solve 1"),
            (Some("bash setup.sh\n"), "solve 1", "bash setup.sh solve 1"),
            (Some("set -e\nmodule load x\n"), "solve 1", "set -e\nmodule load x\nsolve 1"),
            (
                Some("env FOO=1"),
                "echo 'one' && echo $FOO",
                r#"env FOO=1 "${BASH:-/bin/sh}" -c 'echo '\''one'\'' && echo $FOO'"#,
            ),
            (Some("env A=1"), "cd b", r#"env A=1 "${BASH:-/bin/sh}" -c 'cd b'"#),
            (Some(". setup.sh &&"), "a; b", ". setup.sh && {\na; b\n}"),
            (Some("set -e;"), "a # b", "set -e; {\na # b\n}"),
        ] {
            assert_eq!(wrap_with_invocation_script(script, command), expected, "{script:?} {command:?}");
        }
    }
}
