//! `streamgauge receive`: receives media for runs on other machines until it is stopped.

use std::fs;

use engine::{ReceiveOptions, ReceiveProgress};
use kit::remote_receiver::Secret;
use report::human::plural;

use super::long_running::LongRunning;
use crate::args;
use crate::exit::{Exit, Failure};
use crate::ui::console::Console;

/// Minimum length of a secret from a file, in bytes.
const SECRET_MIN: usize = 12;

/// Exits with 0 when it is stopped.
pub(crate) fn receive(arguments: &args::Receive, console: Console) -> Result<Exit, Failure> {
    let (secret, drawn) = match &arguments.secret_file {
        None => {
            let secret = engine::draw_secret().map_err(Failure::bad)?;
            (secret.clone(), Some(secret))
        }
        Some(path) => {
            let text = fs::read_to_string(path)
                .map_err(|error| Failure::bad(format_args!("{}: {error}", path.display())))?;
            let secret = text.lines().next().unwrap_or("").trim().to_owned();
            if secret.len() < SECRET_MIN {
                return Err(Failure::bad(format_args!(
                    "{}: the first line must be a secret of at least {SECRET_MIN} characters",
                    path.display()
                )));
            }
            (secret, None)
        }
    };
    let options = ReceiveOptions {
        listen: arguments.listen,
        secret: Secret::new(secret),
        ports: arguments.ports,
        streams_max: usize::try_from(arguments.max_streams).unwrap_or(usize::MAX),
        receive: arguments.receive,
        version: env!("CARGO_PKG_VERSION").to_owned(),
    };
    let mut attended = LongRunning::start(console)?;
    let mut last = String::new();
    let finished = engine::receive(&options, &attended.control(), &mut |progress| {
        // In one write: programs wait for these lines.
        let secret = drawn.iter().map(|secret| format!("\nsecret {secret}"));
        let secret: String = secret.collect();
        attended.announce([format!("listening on {}{secret}", progress.listening)]);
        last = so_far(progress);
        attended.update_status(&last);
    });
    attended.finish(finished)?;
    console.say(&last);
    Ok(Exit::Pass)
}

fn so_far(progress: &ReceiveProgress) -> String {
    let refused = plural(progress.refused as f64, "connection", "connections");
    let runs = plural(progress.runs as f64, "run", "runs");
    match progress.run {
        Some(from) => format!(
            "receiving {} for {from}; {runs} before, {refused} refused",
            plural(progress.streams as f64, "stream", "streams")
        ),
        None => format!("received for {runs}; {refused} refused"),
    }
}
