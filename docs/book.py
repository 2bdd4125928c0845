#!/usr/bin/env python3
"""A preprocessor of mdBook for links to files outside this folder, such as
`../examples/rtsp-vod.yaml` and `../ARCHITECTURE.md`. These links work in plain Markdown, but a book
ends at its folder. So each of those files becomes a page of the book, and links are changed to it.
mdBook calls this program; `mdbook build docs` builds the book.
"""

import json
import pathlib
import re
import sys

DOCS = pathlib.Path(__file__).resolve().parent
ROOT = DOCS.parent
LINK = re.compile(r"\]\(([^)\s#]*)(#[^)\s]*)?\)")


def page_of(file):
    """Returns the page of a file outside this folder, as a path in the book."""
    inside = file.relative_to(ROOT)
    return pathlib.PurePosixPath("beside", inside.with_suffix(inside.suffix + ".md"))


def chapters(items):
    """Yields every chapter, including nested ones."""
    for item in items:
        if isinstance(item, dict) and "Chapter" in item:
            yield item["Chapter"]
            yield from chapters(item["Chapter"]["sub_items"])


def turned(text, folder, page, wanted):
    """Returns the text of a file of `folder`, with links changed for the book's `page`."""
    up = "../" * (len(page.parts) - 1)

    def replace(match):
        target, heading = match[1], match[2] or ""
        if not target or "://" in target:
            return match[0]
        file = (folder / target).resolve()
        if not file.is_relative_to(ROOT) or file.is_dir() and not file.is_relative_to(DOCS):
            return match[0]
        if file.is_dir():
            file /= "README.md"
        if file.is_relative_to(DOCS):
            # mdBook makes the page of a README the index of its folder.
            inside = re.sub(r"(^|/)README\.md$", r"\1index.md", file.relative_to(DOCS).as_posix())
            return f"]({up}{inside}{heading})"
        if not file.is_file():
            return match[0]
        wanted.setdefault(file, None)
        return f"]({up}{page_of(file)}{heading})"

    return LINK.sub(replace, text)


def content(file, page, wanted):
    """Returns the content of the page of a file outside this folder."""
    text = file.read_text()
    if file.suffix == ".md":
        return turned(text, file.parent, page, wanted)
    language = file.suffix.lstrip(".")
    return f"# {file.relative_to(ROOT)}\n\n```{language}\n{text}```\n"


def main():
    if sys.argv[1:2] == ["supports"]:
        sys.exit(0)
    _, book = json.load(sys.stdin)
    items = book["items" if "items" in book else "sections"]
    wanted = {}
    for chapter in chapters(items):
        if chapter["path"]:
            page = pathlib.PurePosixPath(chapter["path"])
            folder = (DOCS / page).parent
            chapter["content"] = turned(chapter["content"], folder, page, wanted)
    items.append({"PartTitle": "Beside the book"})
    done = []
    while rest := [file for file in wanted if file not in done]:
        for file in rest:
            page = page_of(file)
            text = content(file, page, wanted)
            done.append(file)
            items.append({"Chapter": {
                "name": str(file.relative_to(ROOT)), "content": text, "number": None,
                "sub_items": [], "path": str(page), "source_path": None, "parent_names": [],
            }})
    json.dump(book, sys.stdout)


if __name__ == "__main__":
    main()
