//! Clips for the server to play, generated with ffmpeg if they are missing.
//!
//! A small file next to each clip holds the parameters that it was made with. If they change, the
//! clip is made again. A clip gets its name only when it is complete.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use scenario::Clips;

use crate::catalogue::{ffmpeg_missing, find_program, server_files};
use crate::complaints::Patterns;
use crate::error::SutError;
use crate::launched::{LaunchContext, Launched};
use crate::message::Exit;
use crate::spec::Launch;
use crate::{Options, Progress};

/// Version of the recipe. It changes whenever the same parameters result in another clip.
const RECIPE: u32 = 1;

/// Maximum length of a clip.
const LENGTH_MAX: Duration = Duration::from_secs(24 * 3600);

/// Maximum number of clips.
const COUNT_MAX: u32 = 10_000;

/// Makes missing clips and returns the files of all clips in order.
pub(crate) fn make(
    clips: &Clips,
    base: &Path,
    options: &Options,
    progress: &dyn Fn(Progress),
) -> Result<Vec<PathBuf>, SutError> {
    check(clips)?;
    let directory = base.join(&clips.directory);
    create(&directory)?;
    // Absolute, because a server starts in a folder of its own.
    let directory = fs::canonicalize(&directory).map_err(SutError::file("find", &directory))?;
    let mut paths = Vec::new();
    for number in 1..=clips.count {
        options.check()?;
        let path = directory.join(format!("clip{number}.mp4"));
        if !is_current(clips, number, &path) {
            progress(Progress::MakingClip {
                number,
                count: clips.count,
                path: path.clone(),
            });
            make_one(clips, number, &path, options)?;
        }
        paths.push(path);
    }
    Ok(paths)
}

fn check(clips: &Clips) -> Result<(), SutError> {
    let unusable = |reason: &str| Err(SutError::Unusable(format!("clips: {reason}")));
    if clips.count == 0 || clips.count > COUNT_MAX {
        return unusable("count must be from 1 to 10000");
    }
    if clips.length < Duration::from_millis(100) || clips.length > LENGTH_MAX {
        return unusable("length must be from 100ms to 24h");
    }
    if !(1..=240).contains(&clips.frame_rate) {
        return unusable("frame_rate must be from 1 to 240");
    }
    if !(10_000..=500_000_000).contains(&clips.video.0) {
        return unusable("video must be from 10kbps to 500Mbps");
    }
    if clips
        .audio
        .is_some_and(|rate| !(16_000..=512_000).contains(&rate.0))
    {
        return unusable("audio must be from 16kbps to 512kbps");
    }
    Ok(())
}

/// Creates the folder and its missing ancestors, readable for every user.
fn create(directory: &Path) -> Result<(), SutError> {
    let missing: Vec<&Path> = directory
        .ancestors()
        .take_while(|path| !path.as_os_str().is_empty() && !path.exists())
        .collect();
    fs::create_dir_all(directory).map_err(SutError::file("create", directory))?;
    for path in missing {
        server_files::open_to_all(path, 0o755)?;
    }
    Ok(())
}

fn sidecar(path: &Path) -> PathBuf {
    path.with_extension("mp4.parameters")
}

/// Returns all parameters that determine the content of a clip, as text.
fn parameters(clips: &Clips, number: u32) -> String {
    format!(
        "recipe {RECIPE}\nnumber {number}\nlength {} s\nvideo {} bit/s\naudio {} bit/s\nframe rate {}\n",
        clips.length.as_secs_f64(),
        clips.video.0,
        clips.audio.map_or(0, |rate| rate.0),
        clips.frame_rate
    )
}

fn is_current(clips: &Clips, number: u32, path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|file| file.is_file() && file.len() > 0)
        && fs::read_to_string(sidecar(path)).is_ok_and(|text| text == parameters(clips, number))
}

fn make_one(clips: &Clips, number: u32, path: &Path, options: &Options) -> Result<(), SutError> {
    let ffmpeg = find_program("ffmpeg").ok_or_else(ffmpeg_missing)?;
    let unfinished = path.with_extension(format!("mp4.unfinished-{}", std::process::id()));
    let arguments = arguments(clips, number, &unfinished);
    let made = run(&ffmpeg, arguments, path, options).and_then(|()| {
        let _ = fs::remove_file(sidecar(path));
        put(&unfinished, path).map_err(SutError::file("write", path))?;
        let text = parameters(clips, number);
        let draft = unfinished.with_extension("parameters");
        fs::write(&draft, text)
            .and_then(|()| put(&draft, &sidecar(path)))
            .map_err(SutError::file("write", sidecar(path)))
    });
    if made.is_err() {
        let _ = fs::remove_file(&unfinished);
    }
    made
}

/// Gives a finished file its name and makes it readable for every user.
fn put(draft: &Path, path: &Path) -> io::Result<()> {
    fs::set_permissions(draft, fs::Permissions::from_mode(0o644))?;
    fs::rename(draft, path)
}

/// Returns ffmpeg's arguments. Each clip has its own hue, tone and noise, so that no two are alike.
/// The noise is needed because a tone alone would not fill the audio's bit rate.
fn arguments(clips: &Clips, number: u32, path: &Path) -> Vec<std::ffi::OsString> {
    let length = clips.length.as_secs_f64();
    let (rate, video) = (clips.frame_rate, clips.video.0.to_string());
    let hue = number.wrapping_mul(47) % 360;
    let mut arguments: Vec<std::ffi::OsString> = Vec::new();
    let mut add = |words: &[&str]| arguments.extend(words.iter().map(std::ffi::OsString::from));
    add(&["-nostdin", "-hide_banner", "-loglevel", "error", "-y"]);
    add(&[
        "-f",
        "lavfi",
        "-i",
        &format!("testsrc2=size=640x360:rate={rate}:duration={length}"),
    ]);
    if let Some(audio) = clips.audio {
        let tone = 220 + number.wrapping_mul(37) % 1000;
        let sound = format!(
            "sine=frequency={tone}:sample_rate=48000:duration={length}[a];\
             anoisesrc=sample_rate=48000:amplitude=0.3:seed={number}:duration={length}[b];[a][b]amix"
        );
        add(&["-f", "lavfi", "-i", &sound]);
        add(&["-c:a", "aac", "-ac", "2", "-b:a", &audio.0.to_string()]);
    }
    add(&["-vf", &format!("hue=h={hue}")]);
    // The fastest preset: ten minutes of clips take half a minute of processor time.
    add(&["-c:v", "libx264", "-preset", "ultrafast"]);
    add(&["-pix_fmt", "yuv420p"]);
    add(&["-b:v", &video, "-minrate", &video, "-maxrate", &video]);
    // Half a second: the maximum deviation of the rate over any part of the clip.
    add(&["-bufsize", &(clips.video.0 / 2).to_string()]);
    // A key frame every two seconds, and filler data in frames that need less than their share.
    let group = (rate * 2).to_string();
    add(&["-g", &group, "-x264-params", "nal-hrd=cbr"]);
    add(&["-movflags", "+faststart", "-f", "mp4"]);
    arguments.push(path.into());
    arguments
}

/// Runs ffmpeg until it ends, under a supervisor: it must not outlive a killed streamgauge either.
fn run(
    ffmpeg: &Path,
    arguments: Vec<std::ffi::OsString>,
    path: &Path,
    options: &Options,
) -> Result<(), SutError> {
    let command = std::iter::once(ffmpeg.into()).chain(arguments);
    let launch = Launch::new(command);
    let context = LaunchContext {
        supervisor: options.supervisor.clone(),
        scratch: None,
        no_group: true,
        patterns: Arc::new(Patterns::default()),
    };
    let launched = Launched::start(&launch, context)?;
    let look_every = Duration::from_millis(100);
    let deadline = Instant::now() + LENGTH_MAX;
    while !launched.wait(look_every, |state| state.tree_ended) {
        // Dropping it kills ffmpeg.
        options.check()?;
        if launched.ended().is_some() || Instant::now() >= deadline {
            break;
        }
    }
    launched.wait_for_output();
    let state = launched.state();
    let how = match state.ended {
        Some(Exit::Code(0)) => return Ok(()),
        Some(exit) => exit.to_string(),
        None => "did not end".to_owned(),
    };
    let tail = state.log.tail();
    let last: Vec<&str> = tail.lines().rev().take(3).collect();
    Err(SutError::Clip {
        path: path.to_owned(),
        reason: format!("ffmpeg: {how}: {}", last.join(" | ")),
    })
}

#[cfg(test)]
mod tests {
    use measure::units::BitRate;

    use super::*;

    fn clips() -> Clips {
        Clips {
            directory: "clips".into(),
            count: 2,
            length: Duration::from_secs(2),
            video: BitRate(1_000_000),
            audio: Some(BitRate(128_000)),
            frame_rate: 25,
        }
    }

    #[test]
    fn every_parameter_changes_the_clip() {
        let original = parameters(&clips(), 1);
        assert_ne!(original, parameters(&clips(), 2));
        assert_ne!(
            original,
            parameters(
                &Clips {
                    length: Duration::from_secs(3),
                    ..clips()
                },
                1
            )
        );
        assert_ne!(
            original,
            parameters(
                &Clips {
                    video: BitRate(2_000_000),
                    ..clips()
                },
                1
            )
        );
        assert_ne!(
            original,
            parameters(
                &Clips {
                    audio: None,
                    ..clips()
                },
                1
            )
        );
        assert_ne!(
            original,
            parameters(
                &Clips {
                    frame_rate: 50,
                    ..clips()
                },
                1
            )
        );
    }

    #[test]
    fn impossible_clips_are_refused() {
        for bad in [
            Clips {
                count: 0,
                ..clips()
            },
            Clips {
                length: Duration::ZERO,
                ..clips()
            },
            Clips {
                frame_rate: 0,
                ..clips()
            },
            Clips {
                video: BitRate(0),
                ..clips()
            },
            Clips {
                audio: Some(BitRate(1)),
                ..clips()
            },
        ] {
            assert!(check(&bad).is_err(), "{bad:?}");
        }
        check(&clips()).unwrap();
    }
}
