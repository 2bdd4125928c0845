//! `streamgauge cluster`: prepares runs over several machines.

use std::path::Path;

use cluster::{KeyOptions, write_keys};

use crate::args::{Cluster, ClusterKeys};
use crate::exit::{Exit, Failure};
use crate::ui::console::Console;

/// Exits with 0, or with 104 if something cannot be written.
pub(crate) fn cluster(arguments: &Cluster, console: Console) -> Result<Exit, Failure> {
    match arguments {
        Cluster::Keys(arguments) => keys(arguments, console),
    }
}

fn keys(arguments: &ClusterKeys, console: Console) -> Result<Exit, Failure> {
    let written = write_keys(&KeyOptions {
        folder: arguments.folder.clone(),
        hosts: arguments.hosts.clone(),
        port: arguments.port,
        runners: arguments.runners.clone(),
        valid: arguments.valid.0,
        renew: arguments.renew,
    });
    let written = written.map_err(Failure::bad)?;
    let show = |path: &Path| path.display().to_string();
    console.say(&format!(
        "NATS server: copy {}, ca.pem, server.pem and server-key.pem to its machine, and start \
         `nats-server -c nats.conf` in their folder",
        show(&written.configuration)
    ));
    console.say(&format!(
        "coordinator: `--creds {}`",
        show(&written.coordinator)
    ));
    for (name, path) in &written.runners {
        console.say(&format!(
            "runner {name}: `--name {name} --creds {}`",
            show(path)
        ));
    }
    Ok(Exit::Pass)
}
