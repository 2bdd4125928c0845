//! Servers that streamgauge knows how to start.
//!
//! An entry is a YAML file ([`scenario::ServerEntry`]). The files in this crate's folder
//! `catalogue` are built in; users have further ones in a folder of their own, or name a file. An
//! entry of the user replaces the built-in one of the same name.

mod installed;
pub(crate) mod server_files;

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

use kit::descriptor::Transport;
use kit::server_counters::CounterInterface;

use scenario::{EntryReady, Group, PlaceholderValues, Requirement, ScenarioError, ServerEntry};
use tempfile::TempDir;

use crate::error::SutError;
use crate::spec::{Launch, Ready};
use crate::user::{self, User};

pub use installed::{installed, version};
pub(crate) use server_files::{find_program, is_program};

/// Variable that names the folder of a user's own entries.
/// Default: `streamgauge/servers` in XDG_CONFIG_HOME, else in `~/.config`.
pub const FOLDER_VARIABLE: &str = "STREAMGAUGE_CATALOGUE";

/// Maximum number of entries that are read from a user's folder.
const FILES_MAX: usize = 1_000;

/// Returns names and contents of files in the folder `catalogue`.
macro_rules! files {
    ($($file:literal,)*) => { [$(($file, include_str!(concat!("../catalogue/", $file)))),*] };
}

/// Built-in entries: name and content of their files.
const BUILT_IN: [(&str, &str); 13] = files![
    "vlc.yaml",
    "gstreamer.yaml",
    "mediamtx.yaml",
    "rtp2httpd.yaml",
    "msd_lite.yaml",
    "udpxy.yaml",
    "tvgate.yaml",
    "vlc-relay.yaml",
    "nginx-rtmp.yaml",
    "nginx-hls.yaml",
    "srt-live-transmit.yaml",
    "janus.yaml",
    "livekit.yaml",
];

/// A server of the catalogue.
#[derive(Debug)]
pub struct CatalogueServer {
    /// Name, as in `launch: NAME`.
    pub name: String,
    /// File of the entry; `None` if it is built in.
    pub file: Option<PathBuf>,
    /// The entry, or the mistakes in its file.
    pub entry: Result<ServerEntry, ScenarioError>,
}

/// Returns all servers: the built-in ones, then those of the user's folder.
///
/// # Errors
/// If [`FOLDER_VARIABLE`] names a folder that cannot be read.
pub fn list() -> Result<Vec<CatalogueServer>, SutError> {
    let mut listed: Vec<CatalogueServer> = BUILT_IN
        .iter()
        .map(|(file, text)| CatalogueServer {
            name: stem(Path::new(file)),
            file: None,
            entry: ServerEntry::parse(file, text),
        })
        .collect();
    for own in own_files()?.into_iter().map(server_of) {
        match listed.iter_mut().find(|listed| listed.name == own.name) {
            Some(same) => *same = own,
            None => listed.push(own),
        }
    }
    Ok(listed)
}

/// Returns the names of all servers, in the order of [`list`].
///
/// # Errors
/// As [`list`].
pub fn names() -> Result<Vec<String>, SutError> {
    Ok(list()?.into_iter().map(|listed| listed.name).collect())
}

/// Returns the server of that name; if the name is a path, the server of that file.
///
/// # Errors
/// If there is no such server; the error lists the known ones. Also those of [`list`].
pub fn find(name: &str) -> Result<CatalogueServer, SutError> {
    if is_path(name) {
        return Ok(server_of(name.into()));
    }
    let mut listed = list()?;
    if let Some(index) = listed.iter().position(|listed| listed.name == name) {
        return Ok(listed.swap_remove(index));
    }
    let known: Vec<String> = listed.into_iter().map(|listed| listed.name).collect();
    Err(SutError::UnknownServer {
        name: name.to_owned(),
        known: known.join(", "),
    })
}

/// Returns the server that a file describes.
fn server_of(file: PathBuf) -> CatalogueServer {
    CatalogueServer {
        name: stem(&file),
        entry: ServerEntry::load(&file),
        file: Some(file),
    }
}

/// Returns `true` for a path: a name with a slash or a YAML extension, as in a scenario.
fn is_path(name: &str) -> bool {
    name.contains('/') || is_yaml(Path::new(name))
}

fn is_yaml(path: &Path) -> bool {
    path.extension()
        .is_some_and(|extension| extension == "yaml" || extension == "yml")
}

fn stem(path: &Path) -> String {
    path.file_stem()
        .map(|stem| stem.to_string_lossy().into_owned())
        .unwrap_or_default()
}

/// Returns the files of the user's folder, sorted by name.
fn own_files() -> Result<Vec<PathBuf>, SutError> {
    let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    let named = variable(FOLDER_VARIABLE).map(PathBuf::from);
    let usual = || {
        let base = variable("XDG_CONFIG_HOME")
            .map(PathBuf::from)
            .or_else(|| variable("HOME").map(|home| Path::new(&home).join(".config")))?;
        Some(base.join("streamgauge/servers"))
    };
    let Some(folder) = named.clone().or_else(usual) else {
        return Ok(Vec::new());
    };
    files_of(&folder, named.is_some())
}

/// Returns the entries in a folder. The default folder may be absent.
fn files_of(folder: &Path, must_be: bool) -> Result<Vec<PathBuf>, SutError> {
    let entries = match std::fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(_) if !must_be => return Ok(Vec::new()),
        Err(error) => return Err(SutError::file("read the servers in", folder)(error)),
    };
    let mut files: Vec<PathBuf> = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| is_yaml(path))
        .take(FILES_MAX)
        .collect();
    files.sort_unstable();
    Ok(files)
}

/// Inputs of a command, in addition to the entry.
#[derive(Debug)]
pub(crate) struct Request<'a> {
    /// Address at which clients find the server.
    pub(crate) host: IpAddr,
    /// Port to listen on; default: that of the entry.
    pub(crate) port: Option<u16>,
    /// Interface to receive multicast on.
    pub(crate) interface: &'a str,
    pub(crate) groups: &'a [Group],
    pub(crate) clips: &'a [PathBuf],
    /// True if the clips have audio.
    pub(crate) audio: bool,
    /// User to run as, by name or number. Default: as the entry says.
    pub(crate) user: Option<&'a str>,
}

/// A command ready to start.
#[derive(Debug)]
pub(crate) struct BuiltLaunch {
    pub(crate) launch: Launch,
    pub(crate) urls: Vec<String>,
    pub(crate) scratch: TempDir,
    /// Access to the server's own counters; `None` if it has none.
    pub(crate) counters: Option<CountersAccess>,
    /// Patterns of log lines that are not complaints.
    pub(crate) log_ignore: Vec<String>,
}

/// Access to the counters of a server, on the loopback interface.
#[derive(Debug)]
pub(crate) struct CountersAccess {
    pub(crate) kind: CounterInterface,
    pub(crate) port: u16,
    pub(crate) secret: String,
}

/// Builds the command of a server, and the folder with the files that it needs.
pub(crate) fn build(name: &str, request: &Request<'_>) -> Result<BuiltLaunch, SutError> {
    let listed = find(name)?;
    let entry = listed.entry.map_err(|error| SutError::entry(&error))?;
    check_uses(&entry, request)?;
    let user = user_of(&entry, request.user)?;
    let program = program(&entry, user.as_ref())?;
    let scratch = server_files::scratch()?;
    let home = server_files::home(scratch.path(), user.as_ref())?;
    let clips = server_files::provide_clips(request.clips, scratch.path(), user.as_ref())?;
    let config = entry
        .config
        .as_ref()
        .map(|config| scratch.path().join(&config.name));
    let text = |path: &Path| path.to_string_lossy().into_owned();
    let port = request.port.unwrap_or(entry.port);
    if let Some(user) = &user
        && port < user::first_open_port()
    {
        return Err(SutError::Unusable(format!(
            "only root may listen on port {port}, and `launch: {}` runs as user {user}: choose a port \
             from {} on, or set `user: root` under `server`",
            entry.name,
            user::first_open_port()
        )));
    }
    let (admin_port, secret) = match entry.counters {
        Some(_) => server_files::admin()?,
        None => (0, String::new()),
    };
    let filled = entry.fill(&PlaceholderValues {
        admin_port,
        secret: secret.clone(),
        program: text(&program),
        host: request.host.to_string(),
        port,
        interface: request.interface.to_owned(),
        config: config.as_deref().map(text).unwrap_or_default(),
        scratch: text(scratch.path()),
        home: text(&home),
        audio: request.audio,
        clips: clips.iter().map(|clip| text(clip)).collect(),
        groups: request.groups.to_vec(),
    });
    if let (Some(path), Some(text)) = (&config, &filled.config) {
        server_files::write(path, text)?;
        if entry.counters.is_some() {
            // The file contains the secret.
            server_files::restrict_to(path, user.as_ref())?;
        }
    }
    let mut launch = Launch::new(&filled.command);
    launch.environment = filled
        .environment
        .iter()
        .map(|(name, value)| (name.into(), value.into()))
        .collect();
    launch.directory = Some(scratch.path().to_owned());
    launch.user = user;
    launch.may_be_root = !entry.not_as_root;
    let address = SocketAddr::new(request.host, port);
    let transport = transport(&entry.protocols);
    launch.port = Some((address, transport));
    launch.ready = match entry.ready {
        EntryReady::Port => Ready::Port { address, transport },
        EntryReady::Urls => Ready::Served {
            address,
            urls: filled.urls.clone(),
        },
        EntryReady::Line(text) => Ready::Text(text),
        EntryReady::Pattern(pattern) => Ready::Pattern(pattern),
    };
    Ok(BuiltLaunch {
        launch,
        urls: filled.urls,
        scratch,
        counters: entry.counters.map(|kind| CountersAccess {
            kind,
            port: admin_port,
            secret,
        }),
        log_ignore: entry.log_ignore,
    })
}

/// Returns the transport of the port: that of the first protocol.
fn transport(protocols: &[String]) -> Transport {
    let first = protocols.first().and_then(|name| kit::registry::find(name));
    first.map_or(Transport::Tcp, |protocol| protocol.transport)
}

/// Returns a program of the entry that the user can run.
fn program(entry: &ServerEntry, user: Option<&User>) -> Result<PathBuf, SutError> {
    if let Some(program) = installed::installed_for(entry, user) {
        return Ok(program);
    }
    match (user, installed::installed_for(entry, None)) {
        (Some(user), Some(program)) => Err(SutError::Unusable(format!(
            "`launch: {}` runs as user {user}, which cannot run {} or its dependencies: install it where \
             all users can access it, or set `user: root` under `server`",
            entry.name,
            program.display()
        ))),
        _ => Err(SutError::Missing {
            what: entry.name.clone(),
            remedy: entry.missing.clone(),
        }),
    }
}

/// Checks that a server is installed here for the user that it runs as.
///
/// # Errors
/// If there is no such server, its file has mistakes, or its program is missing.
pub(crate) fn check(name: &str, wanted: Option<&str>) -> Result<(), SutError> {
    let entry = find(name)?.entry.map_err(|error| SutError::entry(&error))?;
    let user = user_of(&entry, wanted)?;
    program(&entry, user.as_ref()).map(|_| ())
}

/// Returns the user that the server runs as. `wanted` is the user that the scenario names, if any.
/// `None`: our own user.
fn user_of(entry: &ServerEntry, wanted: Option<&str>) -> Result<Option<User>, SutError> {
    let user = match wanted {
        Some(name) => User::for_server(name)?,
        None => installed::default_user(entry),
    };
    if entry.not_as_root && user.is_none() && rustix::process::geteuid().is_root() {
        return Err(SutError::Unusable(format!(
            "`launch: {}` does not run as root: set `server.user` to another user, or remove it",
            entry.name
        )));
    }
    Ok(user)
}

/// Checks that the scenario has all that the server needs, and nothing that it does not use.
fn check_uses(entry: &ServerEntry, request: &Request<'_>) -> Result<(), SutError> {
    let uses = [
        (entry.clips, request.clips.is_empty(), "clips", "files"),
        (
            entry.groups,
            request.groups.is_empty(),
            "groups",
            "multicast groups",
        ),
    ];
    for (wanted, none, key, what) in uses {
        let name = &entry.name;
        let problem = match (wanted, none) {
            (Requirement::Needed, true) => {
                format!("`launch: {name}` needs {what}, and has none: set `{key}`")
            }
            (Requirement::No, false) => {
                format!("`launch: {name}` does not use `{key}`: remove it")
            }
            _ => continue,
        };
        return Err(SutError::Unusable(problem));
    }
    Ok(())
}

/// Returns the error about a missing ffmpeg.
pub fn ffmpeg_missing() -> SutError {
    SutError::Missing {
        what: "ffmpeg".to_owned(),
        remedy: "apt-get install ffmpeg".to_owned(),
    }
}

#[cfg(test)]
mod tests;
