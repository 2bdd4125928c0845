//! User and environment of a launched server.

use std::ffi::OsString;
use std::fmt;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::process::geteuid;

use crate::error::SutError;

/// User of servers that do not need root: `nobody`.
const NOBODY: u32 = 65534;

/// List of users (passwd(5)). Users that only a directory service knows must be given by number.
const PASSWD: &str = "/etc/passwd";

/// Variables of our own environment that a launched server gets, in addition to all `LC_*`.
pub const PASSED_ON_VARIABLES: [&str; 7] =
    ["PATH", "HOME", "USER", "LOGNAME", "LANG", "TZ", "TMPDIR"];

/// Variables among them that belong to our own user. Another user does not get our values.
const OF_THE_USER: [&str; 4] = ["HOME", "USER", "LOGNAME", "TMPDIR"];

/// A user of this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct User {
    pub(crate) number: u32,
    /// Its primary group, the only one that a server gets.
    pub(crate) group: u32,
    name: String,
    home: String,
}

impl fmt::Display for User {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name.parse::<u32>() {
            Ok(number) if number == self.number => write!(out, "{number}"),
            _ => write!(out, "{} ({})", self.name, self.number),
        }
    }
}

impl User {
    /// Returns the user that `server.user` names, by name or number; `None` if it is our own user.
    ///
    /// # Errors
    /// If there is no such user, or only root can start a server as that user.
    pub(crate) fn for_server(text: &str) -> Result<Option<User>, SutError> {
        let user = User::find(text)?;
        let own = geteuid();
        if user.number == own.as_raw() {
            return Ok(None);
        }
        if own.is_root() {
            return Ok(Some(user));
        }
        Err(SutError::Unusable(format!(
            "only root can start a server as another user: run streamgauge as root, or remove `user: {text}`"
        )))
    }

    /// Returns the user of a server that does not need root; `None` if we are not root.
    pub(crate) fn unprivileged() -> Option<User> {
        let nobody = || User::find(&NOBODY.to_string()).ok();
        geteuid().is_root().then(nobody).flatten()
    }

    /// Returns `true` if the user may execute the file at a path and enter all folders above it,
    /// according to the permission bits.
    ///
    /// # Errors
    /// If there is no such file, or it cannot be examined.
    pub(crate) fn may_execute(&self, path: &Path) -> io::Result<bool> {
        let path = fs::canonicalize(path)?;
        for part in path.ancestors() {
            let file = fs::metadata(part)?;
            let bit = if file.uid() == self.number {
                0o100
            } else if file.gid() == self.group {
                0o010
            } else {
                0o001
            };
            if file.mode() & bit == 0 {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Returns the user of that name or number.
    ///
    /// # Errors
    /// If there is no such user.
    pub(crate) fn find(text: &str) -> Result<User, SutError> {
        let passwd = fs::read_to_string(PASSWD).unwrap_or_default();
        find(text, &passwd).ok_or_else(|| {
            SutError::Unusable(format!(
                "`server.user`: there is no user `{text}` in {PASSWD}; write a name listed there, or a number"
            ))
        })
    }
}

fn find(text: &str, passwd: &str) -> Option<User> {
    let wanted = text.parse::<u32>();
    let listed = passwd.lines().find_map(|line| {
        let fields: Vec<&str> = line.split(':').collect();
        let [name, _, number, group, _, home, ..] = fields[..] else {
            return None;
        };
        let user = User {
            number: number.parse().ok()?,
            group: group.parse().ok()?,
            name: name.to_owned(),
            home: home.to_owned(),
        };
        let fits = match wanted {
            Ok(number) => user.number == number,
            Err(_) => user.name == text,
        };
        fits.then_some(user)
    });
    // A number does not need an entry.
    listed.or_else(|| {
        let number = wanted.ok()?;
        // -1 means "unchanged" in setuid and similar calls.
        (number != u32::MAX).then(|| User {
            number,
            group: number,
            name: text.to_owned(),
            home: "/".to_owned(),
        })
    })
}

/// Returns the first port that all users may listen on (ip(7), ip_unprivileged_port_start), usually
/// 1024.
pub(crate) fn first_open_port() -> u16 {
    fs::read_to_string("/proc/sys/net/ipv4/ip_unprivileged_port_start")
        .ok()
        .and_then(|text| text.trim().parse().ok())
        .unwrap_or(1024)
}

/// Returns the part of our environment that a server gets: what programs need for their files,
/// language and time. The other variables are ours, and may hold secrets.
pub(crate) fn environment(user: Option<&User>) -> Vec<(OsString, OsString)> {
    select(std::env::vars_os(), user)
}

fn select(
    ours: impl Iterator<Item = (OsString, OsString)>,
    user: Option<&User>,
) -> Vec<(OsString, OsString)> {
    let kept = |name: &str| {
        let passed = PASSED_ON_VARIABLES.contains(&name) || name.starts_with("LC_");
        passed && !(user.is_some() && OF_THE_USER.contains(&name))
    };
    let mut variables: Vec<_> = ours
        .filter(|(name, _)| name.to_str().is_some_and(kept))
        .collect();
    if let Some(user) = user {
        let home = match Path::new(&user.home).is_dir() {
            true => user.home.as_str(),
            // Programs fail if their home does not exist, as that of `nobody`.
            false => "/",
        };
        let name = user.name.as_str();
        let own = [("HOME", home), ("USER", name), ("LOGNAME", name)];
        variables.extend(own.map(|(name, value)| (name.into(), value.into())));
    }
    variables
}

#[cfg(test)]
mod tests {
    use super::*;

    const USERS: &str = "root:x:0:0:root:/root:/bin/bash\n\
                         broken:x\n\
                         media:x:998:997::/nonexistent:/bin/false\n";

    #[test]
    fn users_are_found_by_name_and_number() {
        let media = find("media", USERS).unwrap();
        assert_eq!((media.number, media.group), (998, 997));
        assert_eq!(media.to_string(), "media (998)");
        assert_eq!(find("998", USERS), Some(media));
        let other = find("1234", USERS).unwrap();
        assert_eq!((other.number, other.group), (1234, 1234));
        assert_eq!(other.to_string(), "1234");
        for wrong in ["nobody", "broken", "", "-1", "4294967295"] {
            assert_eq!(find(wrong, USERS), None, "{wrong}");
        }
    }

    #[test]
    fn program_in_a_closed_folder_is_not_executable() {
        let closed = tempfile::tempdir().unwrap();
        fs::set_permissions(
            closed.path(),
            std::os::unix::fs::PermissionsExt::from_mode(0o700),
        )
        .unwrap();
        let program = closed.path().join("server");
        fs::copy("/bin/sh", &program).unwrap();
        let nobody = find("65534", "").unwrap();
        assert!(nobody.may_execute(Path::new("/bin/sh")).unwrap());
        assert!(!nobody.may_execute(&program).unwrap());
        assert!(!nobody.may_execute(Path::new("/etc/passwd")).unwrap());
        let owner = fs::metadata(&program).unwrap();
        let owner = find(&owner.uid().to_string(), "").unwrap();
        assert!(owner.may_execute(&program).unwrap());
    }

    fn names(variables: &[(OsString, OsString)]) -> Vec<String> {
        let mut names: Vec<String> = variables
            .iter()
            .map(|(name, value)| format!("{}={}", name.display(), value.display()))
            .collect();
        names.sort();
        names
    }

    #[test]
    fn only_listed_variables_are_passed_on() {
        let ours = [
            ("PATH", "/bin"),
            ("HOME", "/root"),
            ("LC_TIME", "C"),
            ("AWS_SECRET_ACCESS_KEY", "x"),
            ("STREAMGAUGE_CLIENTS__VIEWERS__MEDIA__SECRET", "x"),
            ("LD_PRELOAD", "x"),
            ("TMPDIR", "/root/tmp"),
        ];
        let ours = || {
            ours.map(|(name, value)| (name.into(), value.into()))
                .into_iter()
        };
        assert_eq!(
            names(&select(ours(), None)),
            ["HOME=/root", "LC_TIME=C", "PATH=/bin", "TMPDIR=/root/tmp"]
        );
        let media = find("media", USERS).unwrap();
        assert_eq!(
            names(&select(ours(), Some(&media))),
            [
                "HOME=/",
                "LC_TIME=C",
                "LOGNAME=media",
                "PATH=/bin",
                "USER=media"
            ]
        );
    }
}
