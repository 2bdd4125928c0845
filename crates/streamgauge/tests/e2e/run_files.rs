//! Damaged or foreign files in place of a run file: `report` refuses each with one sentence that
//! says what to do.

use std::fs;
use std::path::Path;

use crate::support::{folder, run};

/// Checks that the report of `name` is refused in one line with all these parts.
#[track_caller]
fn refused(folder: &Path, name: &str, says: &[&str]) {
    let finished = run(folder, ["report", name]).expect(104);
    let message = finished.stderr.trim_end();
    assert_eq!(message.lines().count(), 1, "{message}");
    assert!(message.starts_with(&format!("error: {name}")), "{message}");
    for part in says {
        assert!(message.contains(part), "no `{part}` in: {message}");
    }
    // First the problem, then the remedy.
    assert!(message.contains("; "), "{message}");
}

#[test]
fn unsound_run_files_are_refused_with_a_remedy() {
    let folder = folder();
    let path = |name: &str| folder.path().join(name);
    let write = |name: &str, bytes: &[u8]| fs::write(path(name), bytes).expect("there is room");
    let arguments = "demo -c 2 --ramp 0s -d 5s -q -o sound.run";
    run(folder.path(), arguments.split(' ')).expect(0);
    let sound = fs::read(path("sound.run")).expect("it was made");

    write("empty.run", b"");
    refused(
        folder.path(),
        "empty.run",
        &["the file is empty", "run it again"],
    );
    write("short.run", &sound[..60]);
    refused(
        folder.path(),
        "short.run",
        &["it ends after 60 bytes", "copy it again"],
    );
    write("cut.run", &sound[..20_000]);
    let says = ["its end is missing: it has 20000 of", "copy it again"];
    refused(folder.path(), "cut.run", &says);
    let mut scratched = sound.clone();
    scratched[8_192..].fill(0x55);
    write("scratched.run", &scratched);
    refused(
        folder.path(),
        "scratched.run",
        &["is damaged", "copy it again"],
    );
    // Version of the format: https://www.sqlite.org/fileformat2.html, "User Version".
    let mut newer = sound.clone();
    newer[60..64].copy_from_slice(&99_u32.to_be_bytes());
    write("newer.run", &newer);
    refused(
        folder.path(),
        "newer.run",
        &["version 99", "use a newer streamgauge"],
    );
    // The file of another program: "Application ID".
    let mut other = sound;
    other[68..72].fill(0);
    write("places.sqlite", &other);
    let foreign = ["this is not a run file of streamgauge", "name a file that"];
    refused(folder.path(), "places.sqlite", &foreign);
    let photo = [b"\xff\xd8\xff\xe0\0\x10JFIF\0".as_slice(), &[7; 5_000]].concat();
    write("photo.jpg", &photo);
    refused(folder.path(), "photo.jpg", &foreign);
    write("notes.txt", b"SQLite format");
    refused(
        folder.path(),
        "notes.txt",
        &["it ends after 13 bytes", "copy it again"],
    );

    refused(
        folder.path(),
        "missing.run",
        &["there is no such file", "name a run file"],
    );
    refused(
        folder.path(),
        "/dev/null",
        &["it is not a regular file", "name a run file"],
    );
    fs::create_dir(path("folder")).expect("there is room");
    let says = [
        "there is no series in this folder",
        "`series.json`",
        "name a run file",
    ];
    refused(folder.path(), "folder", &says);
    write("folder/series.json", b"{");
    let says = [
        "series.json: the index",
        "is damaged",
        "remove it from the folder",
    ];
    refused(folder.path(), "folder", &says);
    write("folder/series.json", br#"{"index_version": 99}"#);
    refused(
        folder.path(),
        "folder",
        &["version 99", "use a newer streamgauge"],
    );
}

#[test]
fn unwritable_report_is_an_error_with_a_remedy() {
    let folder = folder();
    let arguments = "demo -c 2 --ramp 0s -d 5s -q -o x.run";
    run(folder.path(), arguments.split(' ')).expect(0);
    for (path, why) in [
        ("/dev/full", "the disk is full"),
        ("missing/x.json", "there is no such file or directory"),
        (".", "it is a folder"),
    ] {
        run(folder.path(), ["report", "x.run", "-q", "--json", path])
            .expect(104)
            .names(&format!(
                "{path}: the report cannot be written: {why}; name another place"
            ));
    }
}
