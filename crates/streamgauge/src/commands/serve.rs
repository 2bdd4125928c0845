//! `streamgauge serve`: runs an embedded reference server until it is stopped.

use engine::ServeOptions;

use super::long_running::{LongRunning, STOP_TIMEOUT};
use crate::args::Serve;
use crate::exit::{Exit, Failure};
use crate::ui::console::Console;

/// Exits with 0 when it is stopped, which is how every server ends.
pub(crate) fn serve(arguments: Serve, console: Console) -> Result<Exit, Failure> {
    let options = ServeOptions {
        server: arguments.server,
        configured: arguments.configured.map_err(Failure::bad)?,
        stop_timeout: STOP_TIMEOUT,
    };
    let mut attended = LongRunning::start(console)?;
    let finished = engine::serve(options, &attended.control(), &mut |progress| {
        let urls = progress.listening.iter();
        attended.announce(urls.map(|url| format!("listening on {url}")));
        attended.update_status(progress.so_far);
    });
    for line in attended.finish(finished)? {
        console.say(&line);
    }
    Ok(Exit::Pass)
}
