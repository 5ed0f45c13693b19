//! The lines of a log that tell what went wrong.
//!
//! A table of signs, each with what it means and what helps; shared by `why` and by the analysis of whole logs. Plain
//! words in a lower-case line, no regular expressions: quick on a large log, and a new sign is one line.

use serde::Serialize;

/// Words that give a cause away.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Sign {
    /// In lower case.
    pub words: &'static str,
    pub means: &'static str,
    pub weight: Weight,
}

/// How much a line says. Where there is room for few lines, the heavier ones are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Weight {
    /// Sounds like trouble; often only an echo of it.
    Hint,
    /// An error that the program noticed.
    Error,
    /// Names the cause.
    Cause,
}

use Weight::{Cause, Error, Hint};

const fn sign(words: &'static str, means: &'static str, weight: Weight) -> Sign {
    Sign { words, means, weight }
}

/// What `Killed` in a log means where nothing else is known about the end.
pub(crate) const BY_FORCE: &str = "somebody ended it by force";

/// In order of preference: a line means what the first sign of the greatest weight says.
pub const SIGNS: &[Sign] = &[
    // The shell and the system.
    sign(
        "command not found",
        "the shell does not know the program: is it installed, and on the PATH of the job?",
        Cause,
    ),
    sign(
        ": not found",
        "the shell does not know the program: is it installed, and on the PATH of the job?",
        Cause,
    ),
    sign("no such file or directory", "a file or a folder is not where the job looks for it", Cause),
    sign("permission denied", "the job may not read, write or execute something", Cause),
    sign("no space left on device", "a disk is full", Cause),
    sign("disk quota exceeded", "your quota on that disk is used up", Cause),
    sign("read-only file system", "the job writes to a disk that cannot be written", Cause),
    sign("too many open files", "the limit of open files is reached (ulimit -n)", Cause),
    sign("argument list too long", "the command line is longer than the system takes", Cause),
    sign(
        "exec format error",
        "the program was made for another kind of machine, or its first line is wrong",
        Cause,
    ),
    sign("bad interpreter", "the first line of the script names a program that is not there", Cause),
    sign("address already in use", "another process listens on that port", Cause),
    sign("connection refused", "nothing listens where the job wants to connect", Cause),
    sign("could not resolve host", "a host name is unknown, or there is no network", Cause),
    sign("name or service not known", "a host name is unknown, or there is no network", Cause),
    sign("glibc", "the program was built for another version of the C library", Cause),
    sign(
        "error while loading shared libraries",
        "a shared library is missing: is a module to be loaded?",
        Cause,
    ),
    // Memory.
    sign("cannot allocate memory", "there was no memory left", Cause),
    sign("std::bad_alloc", "there was no memory left", Cause),
    sign("memoryerror", "there was no memory left", Cause),
    sign("java.lang.outofmemoryerror", "the Java heap is full (-Xmx)", Cause),
    sign("cannot allocate vector of size", "R had no memory left", Cause),
    sign("cuda out of memory", "the memory of the GPU is full", Cause),
    sign("out of memory", "there was no memory left", Cause),
    sign("oom-kill", "the system killed it for its memory", Cause),
    // Crashes.
    sign("segmentation fault", "the program crashed: it touched memory that is not its own", Cause),
    sign("bus error", "the program crashed: often a file that shrank, or a full /dev/shm", Cause),
    sign("illegal instruction", "the program was built for another processor", Cause),
    sign("floating point exception", "the program crashed on an arithmetic error", Cause),
    sign("stack smashing detected", "the program crashed: it wrote over its own stack", Cause),
    sign("double free", "the program crashed: it freed memory twice", Cause),
    sign("core dumped", "the program crashed", Error),
    sign("panicked at", "a Rust program gave up", Cause),
    sign("assertion", "the program found itself in a state that must not be", Error),
    // Languages.
    sign("modulenotfounderror", "a Python module is not installed in the environment of the job", Cause),
    sign("importerror", "a Python module could not be loaded", Cause),
    sign("syntaxerror", "a Python file cannot be read: wrong syntax, or another version of Python", Cause),
    sign("filenotfounderror", "a file is not where the job looks for it", Cause),
    sign("there is no package called", "an R package is not installed", Cause),
    sign("error in ", "R stopped with an error", Error),
    sign("execution halted", "R stopped with an error", Hint),
    sign("loaderror", "Julia or Ruby could not load a file", Cause),
    sign("exception in thread", "a Java program gave up", Error),
    sign("could not find or load main class", "Java does not find the program", Cause),
    sign("matlab:", "MATLAB stopped with an error", Error),
    // MPI and batch systems.
    sign("mpi_abort", "a process of the MPI job gave up; the others were ended with it", Error),
    sign(
        "mpirun noticed that process",
        "a process of the MPI job died; the others were ended with it",
        Error,
    ),
    sign(
        "there are not enough slots available",
        "mpirun was asked for more processes than it has slots",
        Cause,
    ),
    sign("oversubscribe", "more processes than CPUs", Hint),
    sign("due to time limit", "its time was up", Cause),
    sign("slurmstepd: error", "Slurm ended the step", Error),
    // Compilers and build tools.
    sign("undefined reference to", "the linker misses a function: a library is not named", Cause),
    sign("fatal error:", "the compiler gave up", Error),
    sign("make: ***", "make stopped", Hint),
    // General.
    sign("unrecognized option", "the program does not know an option that it was given", Cause),
    sign("unrecognized arguments", "the program does not know an argument that it was given", Cause),
    sign("invalid option", "the program does not know an option that it was given", Cause),
    sign("usage:", "the program was called in another way than it wants", Hint),
    sign("traceback (most recent call last)", "a Python program gave up", Hint),
    sign("killed", BY_FORCE, Error),
    sign("fatal", "the program gave up", Error),
    sign("error", "the program noticed an error", Error),
    sign("exception", "the program noticed an error", Error),
    sign("failed", "something did not work", Hint),
    sign("failure", "something did not work", Hint),
    sign("abort", "the program gave up", Hint),
];

/// What sounds like trouble and is none.
const HARMLESS: &[&str] = &[
    "0 errors",
    "no error",
    "error=0",
    "errors: 0",
    "without error",
    "0 failed",
    "error rate",
    "error_rate",
];

/// A line worth reading.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Within the text, from 1.
    pub line: usize,
    pub text: String,
    pub means: &'static str,
    pub weight: Weight,
}

/// Longer lines are cut: a progress bar without line ends is no evidence.
const LONGEST: usize = 300;

/// What the line means, if it means anything.
pub fn sign_of(line: &str) -> Option<&'static Sign> {
    let lower = line.to_lowercase();
    if HARMLESS.iter().any(|words| lower.contains(words)) {
        return None;
    }
    let found = SIGNS.iter().filter(|sign| lower.contains(sign.words));
    // The first of the heaviest: `max_by_key` alone would take the last.
    found.rev().max_by_key(|sign| sign.weight)
}

/// The lines of `text` that matter most, at most `limit`, in their order. The exception under the last Python
/// traceback is always among them; of lines that weigh the same, the later ones.
pub fn telling_lines(text: &str, limit: usize) -> Vec<Finding> {
    let lines: Vec<&str> = text.lines().collect();
    let exception = last_exception(&lines);
    let mut found: Vec<Finding> = Vec::new();
    for (number, line) in lines.iter().enumerate() {
        let is_exception = exception == Some(number);
        let sign = sign_of(line);
        if sign.is_none() && !is_exception {
            continue;
        }
        let (means, weight) = match sign {
            Some(sign) if !is_exception => (sign.means, sign.weight),
            Some(sign) if sign.weight == Cause => (sign.means, Cause),
            _ => ("the exception that ended the Python program", Cause),
        };
        found.push(Finding { line: number + 1, text: cut(line), means, weight });
    }
    let mut best: Vec<usize> = (0..found.len()).collect();
    best.sort_by_key(|&i| std::cmp::Reverse((exception == Some(found[i].line - 1), found[i].weight, i)));
    best.truncate(limit);
    best.sort_unstable();
    best.into_iter().map(|i| found[i].clone()).collect()
}

/// The number of the line that names the exception of the last traceback: the first one after it that is not indented.
fn last_exception(lines: &[&str]) -> Option<usize> {
    let start = lines.iter().rposition(|line| line.starts_with("Traceback (most recent call last)"))?;
    let after = lines.iter().enumerate().skip(start + 1);
    after
        .filter(|(_, line)| !line.is_empty())
        .find(|(_, line)| !line.starts_with(char::is_whitespace))
        .map(|(n, _)| n)
}

fn cut(line: &str) -> String {
    let line = line.trim();
    match line.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signs_are_in_lower_case_and_each_is_there_once() {
        for (i, sign) in SIGNS.iter().enumerate() {
            assert_eq!(sign.words, sign.words.to_lowercase());
            assert!(SIGNS[..i].iter().all(|other| other.words != sign.words), "{} twice", sign.words);
        }
    }

    #[test]
    fn a_line_means_what_its_heaviest_sign_says() {
        for (line, words) in [
            ("bash: line 1: solvr: command not found", "command not found"),
            ("/bin/sh: 1: solvr: not found", ": not found"),
            ("cp: cannot stat 'x': No such file or directory", "no such file or directory"),
            ("Error: std::bad_alloc", "std::bad_alloc"),
            ("RuntimeError: CUDA out of memory. Tried", "cuda out of memory"),
            (
                "Error in library(ggplot3) : there is no package called 'ggplot3'",
                "there is no package called",
            ),
            ("thread 'main' panicked at src/main.rs:2:5:", "panicked at"),
            ("main.c:1:10: fatal error: x.h: nothing", "fatal error:"),
            ("Killed", "killed"),
            ("some Error", "error"),
        ] {
            assert_eq!(sign_of(line).map(|sign| sign.words), Some(words), "{line}");
        }
        for line in
            ["all is well", "compiled with 0 errors", "12 passed, 0 failed", "training error rate 0.3"]
        {
            assert_eq!(sign_of(line), None, "{line}");
        }
    }

    #[test]
    fn the_exception_under_the_last_traceback_is_found_whatever_it_is_called() {
        let text = "starting\nTraceback (most recent call last):\n  File \"a.py\", line 1\nKeyError: 'first'\n\
                    During handling\nTraceback (most recent call last):\n  File \"a.py\", line 3, in <module>\n    \
                    boom()\nmy.Boom: it went off\nbye\n";
        let found = telling_lines(text, 1);
        assert_eq!((found[0].line, found[0].text.as_str()), (9, "my.Boom: it went off"));
    }

    #[test]
    fn the_heaviest_lines_are_kept_in_their_order() {
        let text =
            "warning: step failed\nerror: one\nerror: two\nopen: No such file or directory\nerror: three\n";
        let lines: Vec<usize> = telling_lines(text, 3).iter().map(|finding| finding.line).collect();
        assert_eq!(lines, [3, 4, 5]);
        assert_eq!(telling_lines("fine\n", 3), []);
    }

    #[test]
    fn long_lines_are_cut_between_letters() {
        let found = telling_lines(&format!("error {}", "ä".repeat(1000)), 1);
        assert_eq!(found[0].text.chars().count(), LONGEST + 1);
    }
}
