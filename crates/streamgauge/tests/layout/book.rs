//! The documentation as a book: every page is in it once, and guides answer the same questions.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use super::{files, links, root};

/// Guides to protocols, and to sending and receiving.
const GUIDES: [&str; 9] = [
    "http-ts.md",
    "messages.md",
    "receivers.md",
    "relay.md",
    "rtmp.md",
    "rtsp.md",
    "send.md",
    "srt.md",
    "webrtc.md",
];

/// Headings of each guide.
const HEADINGS: [&str; 3] = [
    "## What is measured",
    "## How to read it",
    "## Usual causes",
];

/// Headings of each tutorial.
const STEPS: [&str; 4] = [
    "## What was published",
    "## The command",
    "## Our figures",
    "## What differs, and why",
];

/// Maximum size of a picture, in bytes.
const LARGEST_PICTURE: u64 = 150 * 1024;

/// Returns the pages below `docs`, by their paths in it.
fn pages() -> BTreeSet<String> {
    let docs = root().join("docs");
    let found = files(&docs, "md").into_iter().map(|(path, _)| {
        let inside = path.strip_prefix(&docs).expect("it was found there");
        inside.to_str().expect("names are ASCII").to_owned()
    });
    found.filter(|page| page != "SUMMARY.md").collect()
}

fn read(page: &str) -> String {
    fs::read_to_string(root().join("docs").join(page)).expect("the page is in the repository")
}

#[test]
fn every_page_is_in_the_book_once() {
    let summary = read("SUMMARY.md");
    let mut listed: Vec<String> = links(&summary).map(|(page, _)| page.to_owned()).collect();
    listed.sort_unstable();
    let pages: Vec<String> = pages().into_iter().collect();
    assert_eq!(listed, pages, "docs/SUMMARY.md lists the pages of docs/");
}

#[test]
fn every_page_is_in_the_index() {
    let index = read("README.md");
    let listed: BTreeSet<&str> = links(&index).map(|(page, _)| page).collect();
    let missing: Vec<String> = pages()
        .into_iter()
        .filter(|page| page != "README.md" && !page.starts_with("decisions/"))
        .filter(|page| !listed.contains(page.as_str()))
        .collect();
    assert!(missing.is_empty(), "not in docs/README.md: {missing:?}");
}

#[test]
fn guides_and_tutorials_answer_the_same_questions() {
    let tutorials = pages()
        .into_iter()
        .filter(|page| page.starts_with("tutorials/"));
    let wanted = GUIDES
        .iter()
        .map(|page| ((*page).to_owned(), &HEADINGS[..]))
        .chain(tutorials.map(|page| (page, &STEPS[..])));
    for (page, headings) in wanted {
        let text = read(&page);
        let found: Vec<&str> = text
            .lines()
            .filter(|line| headings.contains(line))
            .collect();
        assert_eq!(
            found, headings,
            "docs/{page}: these headings, in this order"
        );
    }
}

#[test]
fn pictures_are_small_and_shown() {
    let folder = root().join("docs/pictures");
    let mut shown = BTreeSet::new();
    for page in pages() {
        let text = read(&page);
        let page = Path::new(&page);
        let folder = page.parent().expect("a page is in a folder");
        let pictures = links(&text).map(|(file, _)| root().join("docs").join(folder).join(file));
        shown.extend(pictures.filter_map(|path| path.canonicalize().ok()));
    }
    let readme = fs::read_to_string(root().join("README.md")).expect("it is in the repository");
    shown.extend(links(&readme).filter_map(|(file, _)| root().join(file).canonicalize().ok()));
    for entry in fs::read_dir(folder).expect("there are pictures") {
        let path = entry.expect("it can be read").path();
        let bytes = fs::metadata(&path).expect("it is there").len();
        assert!(
            bytes <= LARGEST_PICTURE,
            "{}: {bytes} bytes",
            path.display()
        );
        assert!(
            shown.contains(&path),
            "{}: no page shows it",
            path.display()
        );
    }
}
