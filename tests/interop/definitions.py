"""The tables of kstore.wire.requests and kstore.wire.responses, made of Kafka's own definitions of its messages.

`python -m tests.interop.definitions JAR` writes both modules; JAR is that of kafka-clients. With --check it says only
where they differ, as those of a later version of Kafka do. Only facts are taken over: names, types, versions,
nullability, defaults and tags.
"""

from __future__ import annotations

import argparse
import difflib
import json
import re
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
WIRE = ROOT / "kstore" / "wire"
KAFKA = "4.1"
# What a broker of that version serves and kstore too; Kafka's names without Request.
APIS = (
    "Produce",
    "Fetch",
    "ListOffsets",
    "Metadata",
    "OffsetCommit",
    "OffsetFetch",
    "FindCoordinator",
    "JoinGroup",
    "Heartbeat",
    "LeaveGroup",
    "SyncGroup",
    "DescribeGroups",
    "ListGroups",
    "SaslHandshake",
    "ApiVersions",
    "CreateTopics",
    "DeleteTopics",
    "DeleteRecords",
    "InitProducerId",
    "OffsetForLeaderEpoch",
    "AddPartitionsToTxn",
    "AddOffsetsToTxn",
    "EndTxn",
    "TxnOffsetCommit",
    "DescribeAcls",
    "CreateAcls",
    "DeleteAcls",
    "DescribeConfigs",
    "AlterConfigs",
    "DescribeLogDirs",
    "SaslAuthenticate",
    "CreatePartitions",
    "DeleteGroups",
    "IncrementalAlterConfigs",
    "OffsetDelete",
    "DescribeCluster",
    "DescribeProducers",
    "DescribeTransactions",
    "ListTransactions",
    "ConsumerGroupHeartbeat",
    "ConsumerGroupDescribe",
    "ListConfigResources",
    "DescribeTopicPartitions",
)
KINDS = {"Request": "requests", "Response": "responses"}
COMMENT = re.compile(r"^\s*//.*$", re.MULTILINE)
_LAST = 2**15 - 1
_ZEROS = {"", "0", "false", "0.0"}


def definitions(jar: Path) -> dict[str, dict[str, Any]]:
    """Return Kafka's definitions by the name of the message."""
    found = {}
    with zipfile.ZipFile(jar) as archive:
        for name in archive.namelist():
            if re.fullmatch(r"common/message/\w+\.json", name):
                definition = json.loads(COMMENT.sub("", archive.read(name).decode()))
                found[definition["name"]] = definition
    return found


def table(known: dict[str, dict[str, Any]], kind: str) -> str:
    """Return the lines of the header and of all requests, or responses."""
    names = [f"{kind}Header", *(f"{api}{kind}" for api in APIS)]
    stable = {api: last_stable(known[f"{api}Request"]) for api in APIS}
    return "".join(
        line + "\n" for name in names for line in message(known[name], last=stable.get(name.removesuffix(kind), _LAST))
    )


def last_stable(request: dict[str, Any]) -> int:
    """Return the last version that a broker offers."""
    return versions(request["validVersions"])[-1] - bool(request.get("latestVersionUnstable"))


def versions(text: str) -> range:
    if text == "none":
        return range(0)
    if text.endswith("+"):
        return range(int(text[:-1]), _LAST + 1)
    first, _, last = text.partition("-")
    return range(int(first), int(last or first) + 1)


def common(first: range, second: range) -> range:
    return range(max(first.start, second.start), min(first.stop, second.stop))


def shown(found: range, within: range) -> str:
    """Return versions as a table says them: open to the end, if they have the last one."""
    both = common(found, within)
    if not both:
        return "-"
    if both.stop == within.stop:
        return f"{both[0]}+"
    return f"{both[0]}-{both[-1]}" if len(both) > 1 else str(both[0])


def message(definition: dict[str, Any], *, last: int) -> Iterator[str]:
    valid = common(versions(definition["validVersions"]), range(last + 1))
    flexible = versions(definition["flexibleVersions"])
    of_message = f"{valid[0]}-{valid[-1]}" if len(valid) > 1 else str(valid[0])
    yield f"{definition['name']} {definition.get('apiKey', '-')} {of_message} {shown(flexible, valid)}"
    structs = {struct["name"]: struct["fields"] for struct in definition.get("commonStructs", ())}
    yield from fields(definition["fields"], valid, structs=structs, indent="  ")


def fields(
    found: list[dict[str, Any]], within: range, *, structs: dict[str, list[dict[str, Any]]], indent: str
) -> Iterator[str]:
    for field in found:
        present = common(versions(field["versions"]), within)
        if not present:
            continue
        kind = field["type"]
        words = [field["name"][0].lower() + field["name"][1:], kind]
        if present != within:
            words.append(shown(present, within))
        nullable = shown(versions(field.get("nullableVersions", "none")), within)
        if nullable != "-":
            words.append(f"null={nullable}")
        if "tag" in field:
            assert versions(field["taggedVersions"]) == versions(field["versions"]), field
            words.append(f"tag={field['tag']}")
        # A null of JSON, other than the text, is no default for Kafka's generator.
        default = str(field.get("default") or "").lower()
        if default not in _ZEROS and not (kind == "records" and default == "null"):
            words.append(f"default={default if default in {'null', 'true'} else int(default, 0)}")
        # A field of all versions is never left out.
        if field.get("ignorable") and present != within:
            words.append("ignorable")
        if field.get("flexibleVersions") == "none":
            words.append("inflexible")
        yield indent + " ".join(words)
        inner = field.get("fields") or structs.get(kind.removeprefix("[]"), [])
        yield from fields(inner, present, structs=structs, indent=indent + "  ")


def module(known: dict[str, dict[str, Any]], kind: str) -> str:
    """Return the text of one of the two modules."""
    name = KINDS[kind].upper()
    return (
        f'"""The {KINDS[kind]} of Kafka\'s protocol and their header, as tables for kstore.wire.schema.\n\n'
        f"Written by tests/interop/definitions.py from the definitions of Kafka {KAFKA}: those versions that its "
        f'broker offers.\n"""\n\n{name} = """\n{table(known, kind)}"""\n'
    )


def differences(jar: Path) -> list[str]:
    """Return where the modules of the package differ from what the definitions in a jar say."""
    known = definitions(jar)
    found: list[str] = []
    for kind, name in KINDS.items():
        path = WIRE / f"{name}.py"
        ours, theirs = path.read_text().splitlines(), module(known, kind).splitlines()
        found += difflib.unified_diff(ours, theirs, path.name, jar.name, n=1, lineterm="")
    return found


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.interop.definitions", description=__doc__)
    parser.add_argument("jar", type=Path, metavar="JAR")
    parser.add_argument("--check", action="store_true", help="write nothing; end with 1 if anything differs")
    options = parser.parse_args()
    if options.check:
        found = differences(options.jar)
        sys.stdout.writelines(f"{line}\n" for line in found)
        return int(bool(found))
    known = definitions(options.jar)
    for kind, name in KINDS.items():
        (WIRE / f"{name}.py").write_text(module(known, kind))
    return subprocess.run([sys.executable, "-m", "ruff", "format", "-q", WIRE], check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
