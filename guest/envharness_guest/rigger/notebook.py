"""The code of a notebook as one source, and what it installs by itself."""

import json
import re

SHELL = re.compile(r"^\s*[!%]\s*(.*)$")
CELL_MAGIC = re.compile(r"^\s*%%\s*(\w+)")
#: Magics after which a cell is Python all the same.
PYTHON_CELLS = {"time", "timeit", "capture", "prun"}


def read(text):
    """The source, line by line as in the cells, and the shell lines among it."""
    source, shell = [], []
    document = json.loads(text)
    cells = document.get("cells") or [cell for sheet in document.get("worksheets", []) for cell in sheet.get("cells", [])]
    for cell in cells:
        if cell.get("cell_type") != "code":
            continue
        lines = cell.get("source", cell.get("input", ""))
        lines = "".join(lines) if isinstance(lines, list) else lines
        magic = CELL_MAGIC.match(lines)
        if magic and magic.group(1) not in PYTHON_CELLS:
            if magic.group(1) in ("bash", "sh", "script"):
                shell += lines.splitlines()[1:]
            continue
        for line in lines.splitlines():
            found = SHELL.match(line)
            if found:
                shell.append(found.group(1))
                # The line keeps its place, and an empty block its statement.
                source.append(line[: len(line) - len(line.lstrip())] + "pass")
            else:
                source.append("" if line.lstrip().startswith("%%") else re.sub(r"(\w)\?\s*$", r"\1", line))
        source.append("")
    language = document.get("metadata", {}).get("language_info", {})
    return "\n".join(source), shell, language.get("version")
