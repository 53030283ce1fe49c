"""What MkDocs is told beyond its settings: pages and files that docs/site/build made, and links that lead out of docs/."""

import os
import re
from pathlib import Path

from mkdocs.structure.files import File

ROOT = Path(__file__).resolve().parents[2]
MADE = Path(os.environ["SITE_MADE"])


def on_files(files, config):
    """The front page is the README; help and types have pages; the tutorial's files lie beside it."""
    files.append(File.generated(config, "index.md", content=front()))
    files.append(File.generated(config, "reference/commands.md", content=(MADE / "commands.md").read_text()))
    files.append(File.generated(config, "reference/json.md", content=types()))
    for made in sorted(MADE.glob("*")):
        if made.suffix in (".png", ".gz"):
            files.append(File.generated(config, f"tutorial/{made.name}", abs_src_path=str(made)))
    return files


def front():
    """The README, whose links count from the root."""
    text = (ROOT / "README.md").read_text()
    return re.sub(r"\]\(docs/", "](", text)


def types():
    """The declarations that the page is checked with."""
    declarations = (ROOT / "viewer" / "types" / "analysis.d.ts").read_text()
    return (
        "# JSON\n\nWhat `gputrace analyze --json` prints, as TypeScript sees it. [Measures](../measures.md) defines each member.\n\n"
        f"```ts\n{declarations.rstrip()}\n```\n"
    )


def on_page_markdown(markdown, page, **_):
    """What gputrace says and shows of a tutorial's recording stands in place of the marks; files outside docs/ are named, not linked."""
    name = Path(page.file.src_uri).stem
    said = MADE / f"{name}.txt"
    if page.file.src_uri.startswith("tutorial/") and said.is_file():
        markdown = markdown.replace("<!-- findings -->", f"```text\n{said.read_text().rstrip()}\n```")
        markdown = markdown.replace("<!-- picture -->", f"![The page with this recording]({name}.png)")
        markdown = markdown.replace("<!-- download -->", f"[Download the recording]({name}.tar.gz)")
        if "<!--" in markdown:
            raise ValueError(f"{page.file.src_uri}: a mark that nothing replaces")
    return re.sub(r"\[([^\]]*)\]\((?:\.\./)*(?:ARCHITECTURE|CONTRIBUTING|SECURITY|CHANGELOG|fuzz/|LICENSE)[^)]*\)", r"\1", markdown)
