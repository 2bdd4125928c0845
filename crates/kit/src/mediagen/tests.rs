//! Test helpers: external programs that check generated media.

use std::io::Write;
use std::process::{Command, Stdio};

/// Runs a tool on an input. Returns whether it succeeded, its output, and its error output. `None`
/// if the tool is missing and may be.
pub(crate) fn run(
    program: &str,
    arguments: &[&str],
    input: &[u8],
) -> Option<(bool, Vec<u8>, String)> {
    let child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut child = match child {
        Ok(child) => child,
        Err(error) => {
            assert!(
                std::env::var_os("STREAMGAUGE_TEST_WITHOUT_TOOLS").is_some(),
                "{program} does not start ({error}); set STREAMGAUGE_TEST_WITHOUT_TOOLS to leave \
                 it out"
            );
            return None;
        }
    };
    let mut stdin = child.stdin.take().expect("it is piped");
    let input = input.to_vec();
    let writer = std::thread::spawn(move || stdin.write_all(&input).ok());
    let output = child.wait_with_output().expect("it ends");
    writer.join().expect("it has written");
    Some((
        output.status.success(),
        output.stdout,
        String::from_utf8_lossy(&output.stderr).into_owned(),
    ))
}
