//! `streamgauge serve`: an embedded reference server until it is stopped.

use std::net::SocketAddr;

use engine::{Pacing, ServeFinished, ServeOptions};
use protocol::rtsp::server::{AuthScheme, MulticastConfig, ServerConfig, ServerFaults, Transports};
use report::human::{count, plural, seconds};

use super::attend::{Attended, STOP_TIMEOUT};
use crate::args::{self, Auth};
use crate::console::Console;
use crate::exit::{Exit, Failure};

/// Ends with 0 when it is stopped: that is how every server ends.
pub(crate) fn rtsp(arguments: &args::ServeRtsp, console: Console) -> Result<Exit, Failure> {
    let options = ServeOptions {
        listen: arguments
            .listen
            .iter()
            .map(|&address| SocketAddr::new(address, arguments.port))
            .collect(),
        config: config(arguments)?,
        tls: arguments.tls_cert.clone().zip(arguments.tls_key.clone()),
        report: arguments.report.clone(),
        apart: arguments.no_gso,
        stop_timeout: STOP_TIMEOUT,
    };
    let scheme = match options.tls {
        Some(_) => "rtsps",
        None => "rtsp",
    };
    let mut attended = Attended::begin(console)?;
    let finished = engine::serve(&options, &attended.control(), &mut |progress| {
        let addresses = progress.listening.iter();
        attended.listens(addresses.map(|address| format!("{scheme}://{address}/")));
        attended.goes_on(&so_far(&progress.served));
    });
    let finished = attended.end(finished)?;
    console.say(&format!("served {}", so_far(&finished)));
    if let Some(pacing) = paced(&finished.pacing) {
        console.say(&pacing);
    }
    Ok(Exit::Pass)
}

fn so_far(served: &ServeFinished) -> String {
    format!(
        "{} to their end: {} packets, {} left out, {} sent twice, {} out of order",
        plural(served.streams as f64, "stream", "streams"),
        count(served.sent as f64),
        count(served.lost as f64),
        count(served.duplicated as f64),
        count(served.reordered as f64),
    )
}

/// How well packets were kept to their schedule; nothing where there were none.
fn paced(pacing: &Pacing) -> Option<String> {
    Some(format!(
        "pacing: half of {} left within {} of their time, 99 % within {}, the latest after {}; {} in bursts, {} refused",
        plural(pacing.packets as f64, "packet", "packets"),
        seconds(pacing.lateness_p50_seconds?),
        seconds(pacing.lateness_p99_seconds?),
        seconds(pacing.lateness_max_seconds?),
        count(pacing.in_bursts as f64),
        count(pacing.refused as f64),
    ))
}

fn config(arguments: &args::ServeRtsp) -> Result<ServerConfig, Failure> {
    let (user, password) = match &arguments.user {
        None => (None, String::new()),
        Some(text) => match text.split_once(':') {
            Some((name, password)) if !name.is_empty() => {
                (Some(name.to_owned()), password.to_owned())
            }
            _ => {
                return Err(Failure::bad("--user is written NAME:PASSWORD"));
            }
        },
    };
    Ok(ServerConfig {
        bitrate: arguments.bitrate,
        frame_rate: arguments.fps,
        gop: arguments.gop,
        audio: arguments.audio,
        length: arguments.length.map(|length| length.0),
        streams: arguments.streams,
        mtu: arguments.mtu.into(),
        transports: match arguments.transports {
            args::Transports::Any => Transports::Any,
            args::Transports::Udp => Transports::Udp,
            args::Transports::Tcp => Transports::Tcp,
        },
        multicast: arguments.multicast.map(|group| MulticastConfig {
            group,
            port: arguments.multicast_port,
            ttl: arguments.multicast_ttl,
        }),
        destinations: arguments.allow_destination.clone(),
        user,
        password,
        auth: match arguments.auth {
            Auth::Digest => AuthScheme::Digest,
            Auth::DigestSha256 => AuthScheme::DigestSha256,
            Auth::Basic => AuthScheme::Basic,
            Auth::Any => AuthScheme::Any,
        },
        session_timeout: arguments.session_timeout.0,
        seed: arguments.seed,
        first_seq: arguments.first_seq,
        log_packets: arguments.log_packets,
        faults: faults(&arguments.faults)?,
        ..ServerConfig::default()
    })
}

/// The faults as they are written on the command line.
pub(crate) fn faults(written: &[String]) -> Result<ServerFaults, Failure> {
    let mut faults = ServerFaults::default();
    for text in written {
        faults.add(text).map_err(Failure::bad)?;
    }
    Ok(faults)
}
