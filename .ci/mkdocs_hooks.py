"""Hooks of mkdocs: the list of decisions, and the repository's files that pages link.

Pages name configuration examples, manifests and sources by relative links, which also work in an editor. In the site they
lead to copies below `sources/`; a folder becomes a list of its files.
"""

import html
import os
import posixpath
import re
import shutil

from mkdocs.plugins import get_plugin_logger

SOURCES = "sources"
# A scheme of our own, because mkdocs looks for a page behind each relative link.
SCHEME = "source:"
LINK = re.compile(r"\]\((\.\.?/[^)\s#]+)(#[^)\s]*)?\)")

log = get_plugin_logger("sources")
linked = set()


def on_config(config):
    """Adds a page of the menu for each decision."""
    decisions = sorted(os.listdir(os.path.join(config.docs_dir, "decisions")))
    config.nav.append({"Decisions": [f"decisions/{name}" for name in decisions]})
    return config


def on_page_markdown(markdown, page, config, **_):
    """Marks links that leave the documentation."""
    folder = posixpath.dirname(page.file.src_uri)

    def marked(link):
        path = posixpath.normpath(posixpath.join(folder, link.group(1)))
        if not path.startswith("../"):
            return link.group(0)
        path = path.removeprefix("../")
        if not os.path.exists(os.path.join(os.path.dirname(config.docs_dir), path)):
            log.warning("%s links to %s, which does not exist", page.file.src_uri, path)
            return link.group(0)
        linked.add(path)
        return f"]({SCHEME}{path})"

    return LINK.sub(marked, markdown)


def on_page_content(content, page, config, **_):
    """Leads marked links to the copies."""
    root = os.path.dirname(config.docs_dir)
    up = "../" * page.file.dest_uri.count("/")

    def led(link):
        path = link.group(1)
        index = "/index.html" if os.path.isdir(os.path.join(root, path)) else ""
        return f'href="{up}{SOURCES}/{path}{index}"'

    return re.sub(f'href="{SCHEME}([^"]+)"', led, content)


def on_post_build(config, **_):
    """Copies what was linked."""
    root = os.path.dirname(config.docs_dir)
    for path in sorted(linked):
        source, target = os.path.join(root, path), os.path.join(config.site_dir, SOURCES, path)
        if not os.path.isdir(source):
            os.makedirs(os.path.dirname(target), exist_ok=True)
            shutil.copyfile(source, target)
            continue
        shutil.copytree(source, target, dirs_exist_ok=True)
        for folder, folders, names in os.walk(target):
            entries = [f"{name}/index.html" for name in sorted(folders)] + sorted(names)
            items = "".join(f'<li><a href="{html.escape(name)}">{html.escape(name)}</a></li>' for name in entries)
            title = html.escape(os.path.relpath(folder, os.path.join(config.site_dir, SOURCES)))
            with open(os.path.join(folder, "index.html"), "w", encoding="utf-8") as index:
                index.write(f"<!doctype html><title>{title}</title><h1>{title}</h1><ul>{items}</ul>")
