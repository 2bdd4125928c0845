//! VLC, serving files on demand.

use std::net::Ipv4Addr;

use super::{
    Built, Entry, Request, bring_clips, find_program, home, scratch, unprivileged, url, write,
};
use crate::error::SutError;
use crate::spec::{Launch, Ready};

pub(super) static ENTRY: Entry = Entry {
    name: "vlc",
    summary: "VLC media player, video on demand over RTSP",
    details: "Serves each clip at rtsp://127.0.0.1:PORT/clipN, from its start for every client, over UDP only: RTP \
              over TCP and multicast are answered with 461. Run by root it runs as user 65534, because it refuses \
              to be root.",
    install: "apt-get install vlc-bin vlc-plugin-base",
    port: 8554,
    build,
};

fn build(request: &Request<'_>) -> Result<Built, SutError> {
    let vlc = find_program("vlc").ok_or_else(|| request.entry.missing("vlc"))?;
    if request.clips.is_empty() {
        return Err(SutError::Unusable(
            "`launch: vlc` plays files and has none: say under `clips` what to make".to_owned(),
        ));
    }
    let user = unprivileged();
    let scratch = scratch()?;
    let home = home(scratch.path(), user)?;
    let clips = bring_clips(request.clips, scratch.path(), user)?;
    let mut media = String::new();
    for (number, clip) in (1..).zip(&clips) {
        media += &format!(
            "new clip{number} vod enabled\nsetup clip{number} input {}\n",
            clip.display()
        );
    }
    let configuration = scratch.path().join("media.vlm");
    write(&configuration, &media)?;
    // Not `--rtsp-host`: it becomes a part of each path, and every URL is answered with 404.
    let mut launch = Launch::new([vlc.as_os_str()]);
    launch
        .command
        .extend(["-I", "dummy", "--rtsp-port"].map(Into::into));
    launch.command.extend([
        request.port.to_string().into(),
        "--vlm-conf".into(),
        configuration.into(),
    ]);
    launch.environment.push(("HOME".into(), home.into()));
    launch.directory = Some(scratch.path().to_owned());
    launch.user = user;
    let urls: Vec<String> = (1..=clips.len())
        .map(|number| url(request.port, &format!("clip{number}")))
        .collect();
    // It listens from the first clip on, and knows the others only once it has read them.
    launch.ready = Ready::Rtsp {
        address: (Ipv4Addr::LOCALHOST, request.port).into(),
        urls: urls.clone(),
    };
    Ok(Built {
        launch,
        urls,
        scratch,
    })
}
